data "aws_region" "here" {}
data "aws_partition" "here" {}

locals {
  home    = "/var/lib/cachemind"
  port    = 8080
  tasks   = ["gateway", "signer", "sink", "topics"]
  actions = jsondecode(file("${path.module}/actions.json"))

  resources = {
    snapshots_bucket  = [var.buckets["snapshots"].arn]
    snapshots_objects = ["${var.buckets["snapshots"].arn}/*"]
    data_keys_bucket  = [var.buckets["data_keys"].arn]
    data_keys_objects = ["${var.buckets["data_keys"].arn}/*"]
    audit_bucket      = [var.buckets["audit"].arn]
    audit_objects     = ["${var.buckets["audit"].arn}/*"]
    storage_key       = [var.keys.storage]
    payload_key       = [var.keys.payload]
    root_key          = [var.keys.signing["root"]]
    receipt_keys      = [for use, arn in var.keys.signing : arn if startswith(use, "receipt-")]
    log_keys          = [for use, arn in var.keys.signing : arn if startswith(use, "log-")]
    metrics_log       = ["${var.log_groups["metrics"].arn}:*"]
  }

  # Whether callers are asked for a key, and so the reader of metrics too.
  auth = lookup(var.settings, "auth", "false") == "true"

  # What is the same for every process.
  settings = merge(
    {
      CACHEMIND_AUDIT_MODE   = "true"
      CACHEMIND_DATA_DIR     = local.home
      CACHEMIND_NAMESPACE    = var.namespace
      CACHEMIND_PARTITIONS   = tostring(var.topics.partitions)
      CACHEMIND_PRODUCTION   = "true"
      CACHEMIND_TOPIC_PREFIX = var.topics.prefix

      CACHEMIND_KAFKA_BOOTSTRAP_SERVERS = var.kafka.bootstrap_servers
      CACHEMIND_KAFKA_SASL_MECHANISM    = var.kafka.mechanism
      CACHEMIND_KAFKA_SECURITY_PROTOCOL = "SASL_SSL"
      CACHEMIND_KAFKA_SSL_CA_LOCATION   = "/etc/ssl/certs/ca-certificates.crt"

      AWS_REGION         = data.aws_region.here.name
      AWS_DEFAULT_REGION = data.aws_region.here.name
    },
    { for name, value in var.settings : "CACHEMIND_${upper(name)}" => value },
  )

  metrics = "${local.home}/metrics"

  # What the processes beside a gateway share with it: the stores, and where they count.
  beside = {
    CACHEMIND_DATA_KEYS_URL = "s3://${var.buckets["data_keys"].name}"
    CACHEMIND_PAYLOAD_KEY   = var.keys.uris["payload"]
    CACHEMIND_SECRET_FILE   = "${local.home}/prompt-secret"
    CACHEMIND_SNAPSHOT_URL  = "s3://${var.buckets["snapshots"].name}"
    # Commands on Kafka may ask the model too.
    CACHEMIND_UPSTREAM       = var.upstream_url
    PROMETHEUS_MULTIPROC_DIR = local.metrics
  }

  # The design's warmer is not a process of the program yet: nothing is started in its place.
  processes = {
    gateway = {
      gateway = {
        command = ["cachemind", "gateway"]
        settings = {
          CACHEMIND_HOST = "0.0.0.0"
          # Without keys, who gets here is the security groups' matter alone.
          CACHEMIND_INSECURE = tostring(!local.auth)
          CACHEMIND_PORT     = tostring(local.port)
          CACHEMIND_WORKERS  = tostring(var.gateway.workers)
        }
      }
      materializer = { command = ["cachemind", "materializer"], settings = {} }
      requests     = { command = ["cachemind", "requests"], settings = {} }
      receipts     = { command = ["cachemind", "receipts"], settings = {} }
      # Evicts what has expired. It alone writes to the log besides who answers, so it has an
      # account of its own; it is not urgent, so its end is not the end of the gateway.
      collector = { command = ["cachemind", "collector"], settings = {}, account = "collector" }
      # Tasks come and go with their stores: the next one begins from what this ships.
      snapshots = { command = ["python", "/opt/cachemind/keep_snapshots.py"], settings = {} }
    }
    signer = {
      signer = {
        command = ["cachemind", "signer"]
        settings = {
          CACHEMIND_AUDIT_LOG_KEYS     = var.keys.uris["log"]
          CACHEMIND_AUDIT_RECEIPT_KEYS = var.keys.uris["receipt"]
          CACHEMIND_LOG_DIR            = "${local.home}/audit"
          PROMETHEUS_MULTIPROC_DIR     = local.metrics
        }
      }
    }
    sink = {
      sink = {
        command = ["cachemind", "sink"]
        settings = {
          CACHEMIND_SINK_RETENTION_DAYS = tostring(var.lock_days)
          CACHEMIND_SINK_RETENTION_MODE = "compliance"
          CACHEMIND_SINK_URL            = "s3://${var.buckets["audit"].name}"
          PROMETHEUS_MULTIPROC_DIR      = local.metrics
        }
      }
    }
    topics = {
      topics = {
        command  = ["python", "/opt/cachemind/apply_topics.py"]
        settings = { TOPICS_PLAN = base64gzip(var.topics.plan) }
      }
    }
  }

  # Kafka's account by task and process: the task's own, where nothing else is said.
  accounts = {
    for task, processes in local.processes : task => {
      for process, what in processes : process => try(what.account, task)
    }
  }

  secrets_of = {
    gateway = { PROMPT_SECRET = aws_secretsmanager_secret.prompt.arn }
    signer  = { KEYS_JSON = aws_secretsmanager_secret.pinned.arn }
    sink    = {}
    topics  = {}
  }
}
