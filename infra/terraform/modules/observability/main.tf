# The metrics cachemind_* come from the gateway's /metrics, over all processes of its
# task, by OpenTelemetry beside it, and from lines in the logs of signer and sink: into the
# namespace that bears the installation's name. Counters come as how much they have grown.

resource "aws_cloudwatch_log_group" "this" {
  for_each          = toset(["gateway", "signer", "sink", "topics", "metrics"])
  name              = "/${var.name}/${each.key}"
  retention_in_days = var.retention_days
  kms_key_id        = var.storage_key_arn
}

locals {
  program = {
    fold-lag = {
      metric      = "cachemind_gateway_fold_lag_records"
      threshold   = var.limits.fold_lag_records
      description = "Stores are behind the log: answers are older than they could be."
      missing     = "breaching"
    }
    fold-halted = {
      metric      = "cachemind_fold_halted"
      threshold   = 0
      description = "A record cannot be folded; its partition stands still."
      missing     = "notBreaching"
    }
    dead-letters = {
      metric      = "cachemind_dead_letters_total"
      threshold   = 0
      description = "Records went to the dead-letter topic, with the reason."
      missing     = "notBreaching"
    }
    receipts-lag = {
      metric      = "cachemind_signer_lag_records"
      threshold   = var.limits.audit_lag_records
      description = "Receipts are behind the log."
      missing     = "breaching"
    }
    sealing-lag = {
      metric      = "cachemind_sink_lag_records"
      threshold   = var.limits.audit_lag_records
      description = "Sealed files are behind the receipts."
      missing     = "breaching"
    }
    signing-stopped = {
      metric      = "cachemind_signer_stopped"
      threshold   = 0
      description = "Receipts of a partition cannot go on: what is there does not hold."
      missing     = "notBreaching"
    }
    cutting-stopped = {
      metric      = "cachemind_cutter_stopped"
      threshold   = 0
      description = "No cut is signed any more: what is there does not hold."
      missing     = "notBreaching"
    }
    sealing-stopped = {
      metric      = "cachemind_sink_stalled"
      threshold   = 0
      description = "Receipts or cuts are not sealed any more."
      missing     = "notBreaching"
    }
    irregular-receipts = {
      metric      = "cachemind_sink_irregular_records_total"
      threshold   = 0
      description = "Records on an audit topic do not continue their chain: verify."
      missing     = "notBreaching"
    }
    refused-keys = {
      metric      = "cachemind_key_events_refused_total"
      threshold   = 0
      description = "A key event on the log does not hold: somebody who may write there made it."
      missing     = "notBreaching"
    }
    collector = {
      metric      = "cachemind_collector_failed_sweeps_total"
      threshold   = 0
      description = "Expired entries are not evicted and keep their room."
      missing     = "notBreaching"
    }
    quarantined = {
      metric      = "cachemind_quarantined_namespaces"
      threshold   = 0
      description = "A namespace is not served: its rollback failed validation."
      missing     = "notBreaching"
    }
  }

  brokers = var.kafka_cluster == null ? [] : range(1, var.kafka_cluster.brokers + 1)
}

# What happens once is news: its minute alone makes the alarm. Levels must last.
resource "aws_cloudwatch_metric_alarm" "program" {
  for_each            = local.program
  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = var.name
  metric_name         = each.value.metric
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = endswith(each.value.metric, "_total") && each.key != "collector" ? 1 : 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = each.value.threshold
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

# A cut is signed at least every ten seconds, also when nothing happens: silence is news.
resource "aws_cloudwatch_metric_alarm" "cut_age" {
  alarm_name          = "${var.name}-cut-age"
  alarm_description   = "No cut was signed for three minutes."
  namespace           = var.name
  metric_name         = "cachemind_cuts_total"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 3
  comparison_operator = "LessThanOrEqualToThreshold"
  threshold           = 0
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "${var.name}-5xx"
  alarm_description   = "Too large a share of answers is a 5xx, of the gateway or of the model server."
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.limits.error_ratio
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns

  metric_query {
    id          = "ratio"
    expression  = "IF(all > 20, (FILL(target, 0) + FILL(balancer, 0)) / all, 0)"
    label       = "share of 5xx"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = { all = "RequestCount", target = "HTTPCode_Target_5XX_Count", balancer = "HTTPCode_ELB_5XX_Count" }
    content {
      id = metric_query.key
      metric {
        namespace   = "AWS/ApplicationELB"
        metric_name = metric_query.value
        stat        = "Sum"
        period      = 60
        dimensions  = { LoadBalancer = var.balancer.suffix }
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "broker_disk" {
  for_each            = toset([for broker in local.brokers : tostring(broker)])
  alarm_name          = "${var.name}-broker-${each.key}-disk"
  alarm_description   = "A broker's disk fills up: a full one takes no more writes."
  namespace           = "AWS/Kafka"
  metric_name         = "KafkaDataLogsDiskUsed"
  dimensions          = { "Cluster Name" = var.kafka_cluster.name, "Broker ID" = each.key }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 2
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.limits.disk_percent
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "task_disk" {
  for_each            = toset(["gateway", "signer", "sink"])
  alarm_name          = "${var.name}-${each.key}-disk"
  alarm_description   = "The disk of a task fills up."
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.limits.disk_percent
  evaluation_periods  = 3
  treat_missing_data  = "missing"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns

  metric_query {
    id          = "percent"
    expression  = "100 * used / reserved"
    label       = "percent used"
    return_data = true
  }

  dynamic "metric_query" {
    for_each = { used = "EphemeralStorageUtilized", reserved = "EphemeralStorageReserved" }
    content {
      id = metric_query.key
      metric {
        namespace   = "ECS/ContainerInsights"
        metric_name = metric_query.value
        stat        = "Maximum"
        period      = 60
        dimensions  = { ClusterName = var.ecs_cluster, ServiceName = each.key }
      }
    }
  }
}
