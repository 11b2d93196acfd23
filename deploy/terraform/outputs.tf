output "table_urls" {
  description = "URL of each table for the library, by use."
  value       = { for use, name in var.tables : use => "dynamodb://${name}?region=${data.aws_region.current.id}" }
}

output "table_arns" {
  description = "ARN of each table, by use."
  value       = { for use, table in aws_dynamodb_table.this : use => table.arn }
}

output "policies" {
  description = "The policies of deploy/iam for this bucket and these tables (JSON), by name. Empty without a bucket."
  value       = local.policies
}

output "role_arns" {
  description = "ARN of each role, by the name of its policy."
  value       = { for name, role in aws_iam_role.this : name => role.arn }
}

output "alarm_names" {
  description = "Names of all alarms."
  value = sort(concat(
    keys(aws_cloudwatch_metric_alarm.count),
    keys(aws_cloudwatch_metric_alarm.capacity),
    aws_cloudwatch_metric_alarm.user_errors[*].alarm_name,
  ))
}
