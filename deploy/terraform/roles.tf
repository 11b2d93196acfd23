# Roles with the policies of ../iam. The files are read here, so there is one text of each policy.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

locals {
  partition  = data.aws_partition.current.partition
  bucket_arn = "arn:${local.partition}:s3:::${coalesce(var.bucket, "-")}"
  table_arns = {
    for use, name in var.tables :
    use => join(":", [
      "arn", local.partition, "dynamodb",
      data.aws_region.current.id, data.aws_caller_identity.current.account_id, "table/${name}",
    ])
  }

  # Each resource that the files name. Null: it does not exist, and the permission is left out.
  resources = {
    "arn:aws:s3:::BUCKET"                          = local.bucket_arn
    "arn:aws:s3:::BUCKET/PREFIX/*"                 = join("/", compact([local.bucket_arn, var.prefix, "*"]))
    "arn:aws:s3:::BUCKET/.commitlog-bucket-*"      = "${local.bucket_arn}/.commitlog-bucket-*"
    "arn:aws:s3:::BUCKET/.commitlog-probe-*"       = "${local.bucket_arn}/.commitlog-probe-*"
    "arn:aws:dynamodb:REGION:ACCOUNT:table/LEASES" = lookup(local.table_arns, "leases", null)
    "arn:aws:dynamodb:REGION:ACCOUNT:table/NAMES"  = lookup(local.table_arns, "namespaces", null)
    "arn:aws:dynamodb:REGION:ACCOUNT:table/STATE"  = lookup(local.table_arns, "ingest", null)
    "arn:aws:sqs:REGION:ACCOUNT:QUEUE"             = var.queue_arn
  }

  # An ARN that is not above is an error, and not a permission that is silently missing.
  policies = {
    for file in var.bucket == null ? [] : fileset("${path.module}/../iam", "*.json") :
    trimsuffix(file, ".json") => jsonencode({
      Version = "2012-10-17"
      Statement = [
        for statement in jsondecode(file("${path.module}/../iam/${file}")).Statement : {
          Effect   = statement.Effect
          Action   = flatten([statement.Action])
          Resource = [for arn in flatten([statement.Resource]) : local.resources[arn] if local.resources[arn] != null]
        }
        if anytrue([for arn in flatten([statement.Resource]) : local.resources[arn] != null])
      ]
    })
  }
}

resource "aws_iam_role" "this" {
  for_each = var.roles

  name               = "${var.role_prefix}${each.key}"
  description        = "commitlog: deploy/iam/${each.key}.json"
  assume_role_policy = each.value
  tags               = var.tags
}

resource "aws_iam_role_policy" "this" {
  for_each = var.roles

  name   = "commitlog"
  role   = aws_iam_role.this[each.key].id
  policy = local.policies[each.key]
}
