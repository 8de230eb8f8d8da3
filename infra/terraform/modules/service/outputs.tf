output "base_url" {
  description = "What applications set as base_url."
  value       = "https://${var.hostname}/v1"
}

output "balancer" {
  description = "Load balancer: its DNS name (make `hostname` an alias of it) and its name in metrics."
  value = {
    dns_name     = aws_lb.gateway.dns_name
    zone_id      = aws_lb.gateway.zone_id
    suffix       = aws_lb.gateway.arn_suffix
    group_suffix = aws_lb_target_group.gateway.arn_suffix
  }
}

output "cluster_name" {
  description = "ECS cluster."
  value       = aws_ecs_cluster.this.name
}

output "topics_task" {
  description = "How the task that makes topics and ACLs is started, in the words of `aws ecs run-task --cli-input-json`: once, and after each change of them."
  value = {
    cluster         = aws_ecs_cluster.this.name
    taskDefinition  = aws_ecs_task_definition.this["topics"].arn
    launchType      = "FARGATE"
    platformVersion = "1.4.0"
    networkConfiguration = {
      awsvpcConfiguration = {
        subnets        = var.network.subnet_ids
        securityGroups = [var.network.security_groups["topics"]]
        assignPublicIp = "DISABLED"
      }
    }
  }
}

output "policies" {
  description = "What each role may do, as decoded JSON."
  value       = { for use, policy in aws_iam_role_policy.use : use => jsondecode(policy.policy) }
}

output "start_policies" {
  description = "What starting each task may do, as decoded JSON."
  value       = { for use, policy in aws_iam_role_policy.start : use => jsondecode(policy.policy) }
}

output "containers" {
  description = "Every container of every task."
  value       = { for task, definition in aws_ecs_task_definition.this : task => jsondecode(definition.container_definitions) }
}

output "protections" {
  description = "What a look at the plan should find."
  value = {
    internal           = aws_lb.gateway.internal
    deletion           = aws_lb.gateway.enable_deletion_protection
    listener           = { port = aws_lb_listener.https.port, protocol = aws_lb_listener.https.protocol, policy = aws_lb_listener.https.ssl_policy }
    public_addresses   = anytrue([for service in aws_ecs_service.this : service.network_configuration[0].assign_public_ip])
    secrets_keys       = [for secret in concat([aws_secretsmanager_secret.prompt, aws_secretsmanager_secret.pinned], aws_secretsmanager_secret.metrics) : secret.kms_key_id]
    platforms          = [for service in aws_ecs_service.this : service.platform_version]
    volumes            = { for task, definition in aws_ecs_task_definition.this : task => [for volume in definition.volume : volume.name] }
    remote_shell       = anytrue([for service in aws_ecs_service.this : service.enable_execute_command])
    scaled_by_requests = aws_appautoscaling_policy.requests.target_tracking_scaling_policy_configuration[0].predefined_metric_specification[0].predefined_metric_type
    scaled_by_lag      = sort(keys(aws_appautoscaling_policy.lag))
    capacity           = { for use, target in aws_appautoscaling_target.this : use => { min = target.min_capacity, max = target.max_capacity } }
  }
}
