locals {
  # What the gateway's task asks of a process, besides that it runs, or instead of it. The others answer
  # nobody: each ends by itself when it makes no progress, and its task is begun anew.
  checked = {
    gateway = local.serving
    materializer = {
      healthCheck = {
        command = ["CMD", "python", "/opt/cachemind/alive.py", "materializer"]
        # An empty host fetches its stores before it answers.
        interval    = 60
        timeout     = 10
        retries     = 10
        startPeriod = 300
      }
    }
    collector = {
      essential     = false
      restartPolicy = { enabled = true, restartAttemptPeriod = 60 }
    }
  }

  serving = {
    portMappings = [{ name = "http", containerPort = local.port, protocol = "tcp" }]
    ulimits      = [{ name = "nofile", softLimit = 65536, hardLimit = 65536 }]
    healthCheck = {
      command     = ["CMD", "python", "/opt/cachemind/alive.py", "http://127.0.0.1:${local.port}/healthz"]
      interval    = 10
      timeout     = 5
      retries     = 3
      startPeriod = 60
    }
  }

  # The gateway empties the folder of metrics when it starts: the others come after it.
  after_gateway = {
    dependsOn = [{ containerName = "gateway", condition = "HEALTHY" }]
  }

  containers = {
    for task, processes in local.processes : task => [
      for process, what in processes : merge(
        {
          name                   = process
          image                  = var.image
          essential              = true
          command                = what.command
          user                   = "10001:10001"
          readonlyRootFilesystem = true
          stopTimeout            = 60
          linuxParameters        = { initProcessEnabled = true, capabilities = { add = [], drop = ["ALL"] } }
          environment = [
            for name, value in merge(local.settings, task == "gateway" ? local.beside : {}, what.settings) :
            { name = name, value = value }
          ]
          secrets = concat(
            [
              { name = "CACHEMIND_KAFKA_SASL_USERNAME", valueFrom = "${var.kafka.account_secrets[local.accounts[task][process]]}:username::" },
              { name = "CACHEMIND_KAFKA_SASL_PASSWORD", valueFrom = "${var.kafka.account_secrets[local.accounts[task][process]]}:password::" },
            ],
            [for name, arn in local.secrets_of[task] : { name = name, valueFrom = arn }],
          )
          mountPoints = [
            { sourceVolume = "home", containerPath = local.home, readOnly = false },
            { sourceVolume = "tmp-${process}", containerPath = "/tmp", readOnly = false },
          ]
          logConfiguration = {
            logDriver = "awslogs"
            options = {
              awslogs-group         = var.log_groups[task].name
              awslogs-region        = data.aws_region.here.name
              awslogs-stream-prefix = process
            }
          }
        },
        lookup(local.checked, process, {}),
        { for name, value in local.after_gateway : name => value if task == "gateway" && process != "gateway" },
      )
    ]
  }

  # What tells CloudWatch the task's metrics. It knows no password of Kafka's.
  telling = { gateway = [local.read_metrics], signer = [local.tell_metrics["signer"]], sink = [local.tell_metrics["sink"]], topics = [] }

  # Signer and sink serve nothing that could be asked: lines in their logs say it.
  tell_metrics = {
    for task in ["signer", "sink"] : task => {
      name                   = "metrics"
      image                  = var.image
      essential              = false
      restartPolicy          = { enabled = true, restartAttemptPeriod = 60 }
      command                = ["python", "/opt/cachemind/tell_metrics.py", "${var.name}"]
      user                   = "10001:10001"
      readonlyRootFilesystem = true
      linuxParameters        = { initProcessEnabled = true, capabilities = { add = [], drop = ["ALL"] } }
      environment            = [{ name = "PROMETHEUS_MULTIPROC_DIR", value = local.metrics }]
      secrets                = []
      mountPoints            = [{ sourceVolume = "home", containerPath = local.home, readOnly = false }]
      logConfiguration = {
        logDriver = "awslogs"
        options = {
          awslogs-group         = var.log_groups[task].name
          awslogs-region        = data.aws_region.here.name
          awslogs-stream-prefix = "metrics"
        }
      }
    }
  }

  # AWS's build of OpenTelemetry asks the gateway for /metrics; not one of our processes.
  read_metrics = {
    name                   = "metrics"
    image                  = var.metrics_image
    essential              = false
    user                   = "10001:10001"
    readonlyRootFilesystem = true
    linuxParameters        = { initProcessEnabled = true, capabilities = { add = [], drop = ["ALL"] } }
    dependsOn              = [{ containerName = "gateway", condition = "HEALTHY" }]
    environment            = [{ name = "AOT_CONFIG_CONTENT", value = local.metrics_config }]
    secrets                = [for arn in aws_secretsmanager_secret.metrics[*].arn : { name = "METRICS_KEY", valueFrom = arn }]
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = var.log_groups["gateway"].name
        awslogs-region        = data.aws_region.here.name
        awslogs-stream-prefix = "metrics"
      }
    }
  }

  metrics_config = yamlencode({
    receivers = {
      prometheus = { config = { scrape_configs = [merge(
        {
          job_name        = var.name
          scrape_interval = "30s"
          static_configs  = [{ targets = ["127.0.0.1:${local.port}"] }]
        },
        # It puts its own variable in.
        { for name, value in { authorization = { type = "Bearer", credentials = "$${env:METRICS_KEY}" } } : name => value if local.auth },
      )] } }
    }
    exporters = {
      awsemf = {
        region                  = data.aws_region.here.name
        namespace               = var.name
        log_group_name          = var.log_groups["metrics"].name
        log_stream_name         = "gateway"
        dimension_rollup_option = "ZeroAndSingleDimensionRollup"
        metric_declarations     = [{ dimensions = [[]], metric_name_selectors = ["^cachemind_.*"] }]
      }
    }
    service = { pipelines = { metrics = { receivers = ["prometheus"], exporters = ["awsemf"] } } }
  })

  sizes = {
    gateway = { cpu = var.gateway.cpu, memory = var.gateway.memory_mib, disk = var.gateway.disk_gib }
    signer  = { cpu = var.worker.cpu, memory = var.worker.memory_mib, disk = 21 }
    sink    = { cpu = var.worker.cpu, memory = var.worker.memory_mib, disk = 40 }
    topics  = { cpu = 256, memory = 1024, disk = 21 }
  }
}

resource "aws_ecs_task_definition" "this" {
  for_each                 = local.containers
  family                   = "${var.name}-${each.key}"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = local.sizes[each.key].cpu
  memory                   = local.sizes[each.key].memory
  task_role_arn            = var.roles[each.key].arn
  execution_role_arn       = var.execution_roles[each.key].arn
  container_definitions    = jsonencode(concat(each.value, local.telling[each.key]))

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = "X86_64"
  }

  ephemeral_storage {
    size_in_gib = local.sizes[each.key].disk
  }

  volume {
    name = "home"
  }

  dynamic "volume" {
    for_each = each.value
    content {
      name = "tmp-${volume.value.name}"
    }
  }
}
