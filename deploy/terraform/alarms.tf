# Alarms of CloudWatch. Metrics and their dimensions:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html
# README.md says what each alarm means, and what to do.

locals {
  # Metrics that DynamoDB counts by table, with the number in a minute above which an alarm begins.
  thresholds = {
    ReadThrottleEvents             = 0
    WriteThrottleEvents            = 0
    ConditionalCheckFailedRequests = var.contention_threshold
    TransactionConflict            = var.contention_threshold
  }

  # SystemErrors is counted by table and operation: an alarm without the operation would never see a
  # value. These are the operations of the library.
  operations = ["DeleteItem", "GetItem", "PutItem", "Query", "Scan", "TransactWriteItems"]

  counts = merge(
    { for metric, threshold in local.thresholds : metric => {
      metric     = metric
      threshold  = threshold
      dimensions = {}
    } },
    { for operation in local.operations : "SystemErrors-${operation}" => {
      metric     = "SystemErrors"
      threshold  = 0
      dimensions = { Operation = operation }
    } },
  )

  count_alarms = merge([
    for table in var.alarms ? values(var.tables) : [] : {
      for name, count in local.counts : "${table}-${name}" => merge(count, {
        dimensions = merge(count.dimensions, { TableName = table })
      })
    }
  ]...)

  capacity_alarms = merge([
    for table in var.alarms && var.billing_mode == "PROVISIONED" ? values(var.tables) : [] : {
      for kind in ["Read", "Write"] : "${table}-${kind}Capacity" => { table = table, kind = kind }
    }
  ]...)
}

# Three minutes of five with more than the threshold. DynamoDB sends no value where nothing was counted.
resource "aws_cloudwatch_metric_alarm" "count" {
  for_each = local.count_alarms

  alarm_name          = each.key
  alarm_description   = "Table ${each.value.dimensions.TableName} of commitlog: see deploy/README.md, Alarms"
  namespace           = "AWS/DynamoDB"
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags
}

# A quarter of an hour above the percentage. DynamoDB sends the provisioned capacity every five minutes.
resource "aws_cloudwatch_metric_alarm" "capacity" {
  for_each = local.capacity_alarms

  alarm_name          = each.key
  alarm_description   = "Table ${each.value.table} of commitlog: see deploy/README.md, Alarms"
  evaluation_periods  = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.capacity_threshold
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags

  metric_query {
    id          = "used"
    expression  = "100 * consumed / PERIOD(consumed) / provisioned"
    label       = "Used part of the ${lower(each.value.kind)} capacity, in percent"
    return_data = true
  }

  metric_query {
    id = "consumed"

    metric {
      namespace   = "AWS/DynamoDB"
      metric_name = "Consumed${each.value.kind}CapacityUnits"
      dimensions  = { TableName = each.value.table }
      period      = 300
      stat        = "Sum"
    }
  }

  metric_query {
    id = "provisioned"

    metric {
      namespace   = "AWS/DynamoDB"
      metric_name = "Provisioned${each.value.kind}CapacityUnits"
      dimensions  = { TableName = each.value.table }
      period      = 300
      stat        = "Average"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "user_errors" {
  count = var.user_errors_alarm ? 1 : 0

  alarm_name          = "dynamodb-UserErrors"
  alarm_description   = "All tables of the account in this region: see deploy/README.md, Alarms"
  namespace           = "AWS/DynamoDB"
  metric_name         = "UserErrors"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_actions
  ok_actions          = var.alarm_actions
  tags                = var.tags
}
