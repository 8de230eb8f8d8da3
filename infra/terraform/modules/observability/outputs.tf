output "log_groups" {
  description = "Log groups by task."
  value       = { for use, group in aws_cloudwatch_log_group.this : use => { name = group.name, arn = group.arn } }
}

output "alarms" {
  description = "Names of all alarms."
  value = sort(concat(
    [for alarm in aws_cloudwatch_metric_alarm.program : alarm.alarm_name],
    [aws_cloudwatch_metric_alarm.cut_age.alarm_name, aws_cloudwatch_metric_alarm.errors.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.broker_disk : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.task_disk : alarm.alarm_name],
  ))
}

output "protections" {
  description = "What a look at the plan should find."
  value = {
    for use, group in aws_cloudwatch_log_group.this : use => {
      days = group.retention_in_days
      key  = group.kms_key_id
    }
  }
}
