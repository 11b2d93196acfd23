# terraform init && terraform test: plans of the module, without an account. Values of AWS are made up.

mock_provider "aws" {
  override_data {
    target = data.aws_partition.current
    values = { partition = "aws-cn" }
  }

  override_data {
    target = data.aws_region.current
    values = { id = "cn-north-1" }
  }

  override_data {
    target = data.aws_caller_identity.current
    values = { account_id = "111122223333" }
  }
}

run "tables_of_the_library" {
  command = plan

  assert {
    condition = { for use, table in aws_dynamodb_table.this : use => [table.hash_key, table.range_key] } == {
      leases     = ["path", "etag"]
      namespaces = ["place", "name"]
      ingest     = ["source", "item"]
    }
    error_message = "The keys are those of the library."
  }

  assert {
    condition = alltrue([
      for table in values(aws_dynamodb_table.this) :
      toset([for each in table.attribute : each.name if each.type == "S"]) == toset([table.hash_key, table.range_key])
    ])
    error_message = "The keys are strings."
  }

  assert {
    condition = { for use, table in aws_dynamodb_table.this : use => [for each in table.ttl : each.attribute_name] } == {
      leases     = ["ttl"]
      namespaces = []
      ingest     = []
    }
    error_message = "Only leases expire."
  }

  assert {
    condition     = [for table in values(aws_dynamodb_table.this) : table.billing_mode if table.billing_mode != "PAY_PER_REQUEST"] == []
    error_message = "Tables are billed on demand."
  }

  assert {
    condition     = alltrue([for table in values(aws_dynamodb_table.this) : table.deletion_protection_enabled])
    error_message = "Tables are protected."
  }

  assert {
    condition     = [for use, table in aws_dynamodb_table.this : use if table.point_in_time_recovery[0].enabled] == ["ingest", "namespaces"]
    error_message = "Namespaces and the state of ingest have point-in-time recovery."
  }

  assert {
    condition     = length(output.alarm_names) == 30
    error_message = "Each table has ten alarms."
  }

  assert {
    condition     = length(aws_s3_bucket_lifecycle_configuration.this) == 0 && length(aws_iam_role.this) == 0 && output.policies == {}
    error_message = "Without a bucket there is no rule and no role."
  }

  assert {
    condition     = output.table_urls.leases == "dynamodb://commitlog-leases?region=cn-north-1"
    error_message = "A URL has the region."
  }
}

run "provisioned_tables" {
  command = plan

  variables {
    tables            = { leases = "commits" }
    billing_mode      = "PROVISIONED"
    capacity          = { leases = { read = 5, write = 10 } }
    kms_key_arn       = "arn:aws-cn:kms:cn-north-1:111122223333:key/k"
    user_errors_alarm = true
  }

  assert {
    condition     = [aws_dynamodb_table.this["leases"].read_capacity, aws_dynamodb_table.this["leases"].write_capacity] == [5, 10]
    error_message = "The table has its capacity."
  }

  assert {
    condition     = aws_dynamodb_table.this["leases"].server_side_encryption[0].kms_key_arn == var.kms_key_arn
    error_message = "The table has its key."
  }

  assert {
    condition     = keys(aws_cloudwatch_metric_alarm.capacity) == ["commits-ReadCapacity", "commits-WriteCapacity"]
    error_message = "Both capacities have an alarm."
  }

  assert {
    condition     = contains(output.alarm_names, "dynamodb-UserErrors")
    error_message = "The account has an alarm."
  }
}

run "provisioned_tables_need_a_capacity" {
  command         = plan
  expect_failures = [var.capacity]

  variables {
    billing_mode = "PROVISIONED"
    capacity     = { leases = { read = 5, write = 10 } }
  }
}

run "tables_on_demand_have_no_capacity" {
  command         = plan
  expect_failures = [var.capacity]

  variables {
    capacity = { leases = { read = 5, write = 10 } }
  }
}

run "a_rule_of_few_days_is_refused" {
  command         = plan
  expect_failures = [var.abandoned_upload_days]

  variables {
    bucket                = "lake"
    abandoned_upload_days = 6
  }
}

run "a_prefix_is_no_pattern" {
  command         = plan
  expect_failures = [var.prefix]

  variables {
    bucket = "lake"
    prefix = "*"
  }
}

run "an_unknown_role_is_refused" {
  command         = plan
  expect_failures = [var.roles]

  variables {
    bucket = "lake"
    roles  = { admin = "{}" }
  }
}

run "roles" {
  # The ARNs are known before the first apply, so a plan shows the policies.
  command = plan

  variables {
    tables                = { leases = "commits", ingest = "state" }
    bucket                = "lake"
    prefix                = "a/b"
    abandoned_upload_days = 14
    roles                 = { reader = "{}", ingest = "{}", operator = "{}" }
  }

  assert {
    condition = jsondecode(aws_iam_role_policy.this["reader"].policy).Statement == [
      { Effect = "Allow", Action = ["s3:ListBucket"], Resource = ["arn:aws-cn:s3:::lake"] },
      { Effect = "Allow", Action = ["s3:GetObject"], Resource = ["arn:aws-cn:s3:::lake/a/b/*"] },
    ]
    error_message = "The reader reads below the prefix."
  }

  assert {
    condition = toset(flatten(jsondecode(aws_iam_role_policy.this["ingest"].policy).Statement[*].Resource)) == toset([
      "arn:aws-cn:s3:::lake", "arn:aws-cn:s3:::lake/a/b/*", "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/state",
    ])
    error_message = "Without a queue there is no permission on one."
  }

  assert {
    condition = toset(flatten(jsondecode(aws_iam_role_policy.this["operator"].policy).Statement[*].Resource)) == toset([
      "arn:aws-cn:s3:::lake", "arn:aws-cn:s3:::lake/a/b/*",
      "arn:aws-cn:s3:::lake/.commitlog-bucket-*", "arn:aws-cn:s3:::lake/.commitlog-probe-*",
      "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/commits",
      "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/state",
    ])
    error_message = "Without a table of namespaces there is no permission on one."
  }

  assert {
    condition     = keys(output.policies) == [for file in sort(fileset("${path.module}/../iam", "*.json")) : trimsuffix(file, ".json")]
    error_message = "Each file is a policy."
  }

  assert {
    condition     = aws_s3_bucket_lifecycle_configuration.this[0].rule[0].abort_incomplete_multipart_upload[0].days_after_initiation == 14
    error_message = "The rule has its days."
  }
}

run "whole_bucket" {
  command = plan

  variables {
    bucket    = "lake"
    queue_arn = "arn:aws-cn:sqs:cn-north-1:111122223333:arrivals"
  }

  assert {
    condition     = strcontains(output.policies["reader"], "\"arn:aws-cn:s3:::lake/*\"")
    error_message = "Without a prefix a role has the whole bucket."
  }

  assert {
    condition     = strcontains(output.policies["ingest"], "\"arn:aws-cn:sqs:cn-north-1:111122223333:arrivals\"")
    error_message = "The queue is in the policy."
  }
}
