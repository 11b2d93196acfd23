# Tables for one lake, with alarms, the rule for abandoned uploads, and roles for Spark jobs on EMR.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

provider "aws" {
  region = "eu-west-1"
}

variable "bucket" {
  description = "An existing bucket that no other program has lifecycle rules for."
  type        = string
}

variable "alarm_email" {
  description = "Address that gets the alarms."
  type        = string
}

resource "aws_sns_topic" "alarms" {
  name = "commitlog-alarms"
}

resource "aws_sns_topic_subscription" "alarms" {
  topic_arn = aws_sns_topic.alarms.arn
  protocol  = "email"
  endpoint  = var.alarm_email
}

data "aws_iam_policy_document" "ec2" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

module "commitlog" {
  source = "../.."

  tables = {
    leases     = "lake-leases"
    namespaces = "lake-names"
    ingest     = "lake-ingest"
  }

  bucket                = var.bucket
  prefix                = "lake"
  abandoned_upload_days = 14
  alarm_actions         = [aws_sns_topic.alarms.arn]
  tags                  = { team = "data" }

  roles = {
    writer           = data.aws_iam_policy_document.ec2.json
    namespace-writer = data.aws_iam_policy_document.ec2.json
    operator         = data.aws_iam_policy_document.ec2.json
  }
}

output "table_urls" {
  description = "URLs for --table, --metadata and --state."
  value       = module.commitlog.table_urls
}
