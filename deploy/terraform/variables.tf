# Tables

variable "tables" {
  description = "Names of the tables, by use: leases, namespaces, ingest. A use that is left out gets no table."
  type        = map(string)
  default = {
    leases     = "commitlog-leases"
    namespaces = "commitlog-namespaces"
    ingest     = "commitlog-ingest"
  }

  validation {
    condition     = length(setsubtract(keys(var.tables), ["leases", "namespaces", "ingest"])) == 0
    error_message = "The uses of tables are leases, namespaces and ingest."
  }

  validation {
    condition     = alltrue([for name in values(var.tables) : can(regex("^[A-Za-z0-9_.-]{3,255}$", name))])
    error_message = "The name of a table has 3 to 255 letters, digits and characters of \"_.-\"."
  }

  validation {
    condition     = length(distinct(values(var.tables))) == length(var.tables)
    error_message = "Each use needs its own table: the keys differ."
  }
}

variable "billing_mode" {
  description = "PAY_PER_REQUEST (on demand), or PROVISIONED with capacity."
  type        = string
  default     = "PAY_PER_REQUEST"

  validation {
    condition     = contains(["PAY_PER_REQUEST", "PROVISIONED"], var.billing_mode)
    error_message = "The billing mode is PAY_PER_REQUEST or PROVISIONED."
  }
}

variable "capacity" {
  description = "Read and write capacity units of the tables, by use. Only with billing mode PROVISIONED."
  type = map(object({
    read  = number
    write = number
  }))
  default = {}

  validation {
    condition = (
      var.billing_mode == "PROVISIONED"
      ? length(setsubtract(keys(var.tables), keys(var.capacity))) == 0
      : length(var.capacity) == 0
    )
    error_message = "With PROVISIONED each table needs a capacity. With PAY_PER_REQUEST no table has one."
  }

  validation {
    condition     = length(setsubtract(keys(var.capacity), keys(var.tables))) == 0
    error_message = "A capacity has no table: see the variable tables."
  }

  validation {
    condition     = alltrue([for units in values(var.capacity) : units.read >= 1 && units.write >= 1])
    error_message = "A capacity is at least one unit."
  }
}

variable "point_in_time_recovery" {
  description = "Uses of the tables with point-in-time recovery. A restored table of leases is of no use."
  type        = set(string)
  default     = ["namespaces", "ingest"]

  validation {
    condition     = length(setsubtract(var.point_in_time_recovery, ["leases", "namespaces", "ingest"])) == 0
    error_message = "The uses of tables are leases, namespaces and ingest."
  }
}

variable "deletion_protection" {
  description = "Whether DynamoDB refuses to delete the tables."
  type        = bool
  default     = true
}

variable "kms_key_arn" {
  description = "Key of KMS that encrypts the tables. Null: a key that AWS owns."
  type        = string
  default     = null
}

variable "tags" {
  description = "Tags of tables, alarms and roles."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.tags), "commitlog-table-version")
    error_message = "The tag commitlog-table-version is the format of the table: choose another key."
  }
}

# Alarms

variable "alarms" {
  description = "Whether each table gets alarms."
  type        = bool
  default     = true
}

variable "alarm_actions" {
  description = "ARNs that are told when an alarm begins and ends, such as topics of SNS."
  type        = list(string)
  default     = []
}

variable "contention_threshold" {
  description = "Lost races in a minute above which an alarm begins. Set it to a few times the usual number."
  type        = number
  default     = 600

  validation {
    condition     = var.contention_threshold >= 1
    error_message = "The threshold is at least 1."
  }
}

variable "capacity_threshold" {
  description = "Percentage of the provisioned capacity above which an alarm begins."
  type        = number
  default     = 80

  validation {
    condition     = var.capacity_threshold > 0 && var.capacity_threshold <= 100
    error_message = "The threshold is a percentage."
  }
}

variable "user_errors_alarm" {
  description = "Whether to make the alarm on UserErrors, which counts all tables of the account and region."
  type        = bool
  default     = false
}

# The bucket

variable "bucket" {
  description = "Name of the bucket, for the lifecycle rule and the roles. Null: neither is made."
  type        = string
  default     = null
}

variable "prefix" {
  description = "Prefix of the objects that the roles may use, without slashes at its ends. Empty: the whole bucket."
  type        = string
  default     = ""

  # Other characters have a meaning in policies.
  validation {
    condition     = can(regex("^([A-Za-z0-9!_.'()=-]+(/[A-Za-z0-9!_.'()=-]+)*)?$", var.prefix))
    error_message = "The prefix has letters, digits and \"!_.'()=-\", and single slashes between them."
  }
}

variable "abandoned_upload_days" {
  description = "Days after which S3 removes uncompleted uploads. Null: no rule. The rule replaces all others of the bucket."
  type        = number
  default     = null

  validation {
    condition     = var.abandoned_upload_days == null || var.bucket != null
    error_message = "A rule needs a bucket."
  }

  # The age at which the library aborts uploads of namespaces: commitlog.namespace.jobs.committer.STAGING_AGE.
  validation {
    condition     = try(var.abandoned_upload_days >= 7, var.abandoned_upload_days == null)
    error_message = "A rule of less than 7 days can remove the uploads of running jobs."
  }
}

# Roles

variable "roles" {
  description = "Trust policies (JSON) of the roles to make, by the name of their policy in deploy/iam, such as writer."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(var.roles) == 0 || var.bucket != null
    error_message = "The roles need the name of the bucket."
  }

  validation {
    condition = length(setsubtract(keys(var.roles), [
      for file in fileset("${path.module}/../iam", "*.json") : trimsuffix(file, ".json")
    ])) == 0
    error_message = "A role has no policy in deploy/iam."
  }
}

variable "role_prefix" {
  description = "Beginning of the names of the roles; the name of the policy follows."
  type        = string
  default     = "commitlog-"
}

variable "queue_arn" {
  description = "Queue with notifications of new objects, for the role ingest. Null: none."
  type        = string
  default     = null
}
