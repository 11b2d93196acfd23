# The tables, and the rule for abandoned uploads. Alarms are in alarms.tf, roles in roles.tf.

locals {
  # The keys of each use, and the attribute of expiry: `commitlog table create` makes the same.
  keys = {
    leases     = { hash_key = "path", range_key = "etag", ttl_attribute = "ttl" }
    namespaces = { hash_key = "place", range_key = "name", ttl_attribute = null }
    ingest     = { hash_key = "source", range_key = "item", ttl_attribute = null }
  }

  # The library gives this tag to tables that it creates. Without it here, each plan would remove the tag.
  format_tag = { "commitlog-table-version" = "1" }
}

resource "aws_dynamodb_table" "this" {
  for_each = var.tables

  name                        = each.value
  hash_key                    = local.keys[each.key].hash_key
  range_key                   = local.keys[each.key].range_key
  billing_mode                = var.billing_mode
  read_capacity               = try(var.capacity[each.key].read, null)
  write_capacity              = try(var.capacity[each.key].write, null)
  deletion_protection_enabled = var.deletion_protection

  attribute {
    name = local.keys[each.key].hash_key
    type = "S"
  }

  attribute {
    name = local.keys[each.key].range_key
    type = "S"
  }

  dynamic "ttl" {
    for_each = local.keys[each.key].ttl_attribute[*]

    content {
      enabled        = true
      attribute_name = ttl.value
    }
  }

  point_in_time_recovery {
    enabled = contains(var.point_in_time_recovery, each.key)
  }

  dynamic "server_side_encryption" {
    for_each = var.kms_key_arn[*]

    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }

  tags = merge(var.tags, local.format_tag)
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count = var.abandoned_upload_days == null ? 0 : 1

  bucket = var.bucket

  rule {
    id     = "abandoned-uploads"
    status = "Enabled"

    filter {
      prefix = ""
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = var.abandoned_upload_days
    }
  }
}
