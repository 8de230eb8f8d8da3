resource "aws_ecs_cluster" "this" {
  name = var.name
  setting {
    name  = "containerInsights"
    value = "enhanced"
  }
}

resource "aws_lb" "gateway" {
  name                       = var.name
  internal                   = true
  load_balancer_type         = "application"
  subnets                    = var.network.subnet_ids
  security_groups            = [var.network.security_groups["balancer"]]
  drop_invalid_header_fields = true
  enable_deletion_protection = true
  # A model may think for minutes before its first byte.
  idle_timeout = 600

  access_logs {
    enabled = true
    bucket  = var.access_log_bucket
    prefix  = "gateway"
  }
}

resource "aws_lb_target_group" "gateway" {
  name                          = var.name
  vpc_id                        = var.network.vpc_id
  target_type                   = "ip"
  protocol                      = "HTTP"
  port                          = local.port
  deregistration_delay          = 120
  load_balancing_algorithm_type = "least_outstanding_requests"

  health_check {
    path                = "/readyz"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }
}

resource "aws_lb_listener" "https" {
  load_balancer_arn = aws_lb.gateway.arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.gateway.arn
  }
}

locals {
  services = {
    gateway = { min = var.gateway.min, max = var.gateway.max, grace = 900 }
    # More than one a partition has nothing to do.
    signer = { min = min(var.worker.min, var.topics.partitions), max = min(var.worker.max, var.topics.partitions), grace = null }
    sink   = { min = min(var.worker.min, var.topics.partitions), max = min(var.worker.max, var.topics.partitions), grace = null }
  }
  # What each says of itself: the records that wait for it, in the partition with most.
  lags = { signer = "cachemind_signer_lag_records", sink = "cachemind_sink_lag_records" }
}

resource "aws_ecs_service" "this" {
  for_each                          = local.services
  name                              = each.key
  cluster                           = aws_ecs_cluster.this.id
  task_definition                   = aws_ecs_task_definition.this[each.key].arn
  launch_type                       = "FARGATE"
  platform_version                  = "1.4.0"
  desired_count                     = var.running ? each.value.min : 0
  health_check_grace_period_seconds = each.value.grace
  enable_execute_command            = false
  propagate_tags                    = "SERVICE"

  network_configuration {
    subnets          = var.network.subnet_ids
    security_groups  = [var.network.security_groups[each.key]]
    assign_public_ip = false
  }

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  dynamic "load_balancer" {
    for_each = each.key == "gateway" ? [aws_lb_target_group.gateway.arn] : []
    content {
      target_group_arn = load_balancer.value
      container_name   = "gateway"
      container_port   = local.port
    }
  }

  depends_on = [aws_lb_listener.https, aws_iam_role_policy.use, aws_iam_role_policy.start]

  lifecycle {
    # Moved by the scaling below.
    ignore_changes = [desired_count]
  }
}

resource "aws_appautoscaling_target" "this" {
  for_each           = local.services
  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = "service/${aws_ecs_cluster.this.name}/${aws_ecs_service.this[each.key].name}"
  min_capacity       = var.running ? each.value.min : 0
  max_capacity       = var.running ? each.value.max : 0
}

resource "aws_appautoscaling_policy" "requests" {
  name               = "requests"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = aws_appautoscaling_target.this["gateway"].resource_id

  target_tracking_scaling_policy_configuration {
    target_value = var.gateway.requests_per_min
    # A host that starts empty folds the log first: not to be thrown away lightly.
    scale_in_cooldown  = 900
    scale_out_cooldown = 60

    predefined_metric_specification {
      predefined_metric_type = "ALBRequestCountPerTarget"
      resource_label         = "${aws_lb.gateway.arn_suffix}/${aws_lb_target_group.gateway.arn_suffix}"
    }
  }
}

resource "aws_appautoscaling_policy" "lag" {
  for_each           = local.lags
  name               = "lag"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = aws_appautoscaling_target.this[each.key].resource_id

  target_tracking_scaling_policy_configuration {
    target_value       = var.worker.lag
    scale_in_cooldown  = 600
    scale_out_cooldown = 60

    customized_metric_specification {
      namespace   = var.name
      metric_name = each.value
      statistic   = "Maximum"
    }
  }
}
