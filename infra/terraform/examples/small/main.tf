# The least that keeps what CacheMind promises: three small brokers, one task a role.
module "kafka" {
  source             = "../../modules/kafka"
  name               = var.name
  subnet_ids         = module.network.subnet_ids
  security_group_id  = module.network.security_groups["kafka"]
  storage_key_arn    = module.keys.storage
  instance_type      = "kafka.t3.small"
  disk_gib           = 50
  replication_factor = var.replication_factor
  open_until_acls    = var.open_until_acls
  log_retention_days = 90
  passwords          = var.passwords
  passwords_version  = var.passwords_version

  # The ceremony's for its hour, and those of applications that speak Kafka.
  accounts = concat(
    ["gateway", "collector", "signer", "sink", "topics", "auditor"],
    length(var.key_ceremony) > 0 ? ["ceremony"] : [],
    var.grants == null ? [] : var.grants[*].user,
  )
}

module "identities" {
  source       = "../../modules/identities"
  name         = var.name
  auditors     = var.auditors
  key_ceremony = var.key_ceremony
}

module "keys" {
  source            = "../../modules/keys"
  name              = var.name
  roles             = module.identities.roles
  execution_roles   = module.identities.execution_roles
  administrators    = var.administrators
  generations       = var.generations
  data_keys_bucket  = "${var.bucket_prefix}-${var.name}-data-keys"
  access_log_bucket = module.audit.access_log_bucket
}

module "audit" {
  source            = "../../modules/audit"
  name              = var.name
  roles             = module.identities.roles
  bucket            = "${var.bucket_prefix}-${var.name}-audit"
  access_log_bucket = "${var.bucket_prefix}-${var.name}-access-log"
  lock_days         = var.lock_days
}

module "snapshots" {
  source            = "../../modules/snapshots"
  name              = var.name
  bucket            = "${var.bucket_prefix}-${var.name}-snapshots"
  storage_key_arn   = module.keys.storage
  access_log_bucket = module.audit.access_log_bucket
}

module "network" {
  source             = "../../modules/network"
  name               = var.name
  availability_zones = var.availability_zones
  client_cidrs       = var.client_cidrs
  upstream           = var.upstream
  storage_key_arn    = module.keys.storage
  log_retention_days = 90
  kafka              = { port = 9096, cidrs = [], client_cidrs = var.kafka_client_cidrs }
}

module "topics" {
  source             = "../../modules/topics"
  partitions         = 2
  replication_factor = var.replication_factor
  retention_days     = var.retention_days
  grants             = var.grants
  key_ceremony       = length(var.key_ceremony) > 0
}

module "service" {
  source            = "../../modules/service"
  name              = var.name
  image             = var.image
  metrics_image     = var.metrics_image
  running           = var.running
  roles             = module.identities.roles
  execution_roles   = module.identities.execution_roles
  network           = module.network
  kafka             = module.kafka
  topics            = module.topics
  keys              = module.keys
  buckets           = { audit = module.audit.bucket, snapshots = module.snapshots.bucket, data_keys = module.keys.data_keys_bucket }
  access_log_bucket = module.audit.access_log_bucket
  lock_days         = module.audit.lock_days
  log_groups        = module.observability.log_groups
  certificate_arn   = var.certificate_arn
  hostname          = var.hostname
  upstream_url      = var.upstream_url
  secrets           = var.secrets
  secrets_version   = var.secrets_version
  settings          = var.settings
  gateway           = { cpu = 2048, memory_mib = 8192, disk_gib = 30, workers = 1, min = 1, max = 2 }
  worker            = { cpu = 512, memory_mib = 2048, min = 1, max = 1 }
}

module "observability" {
  source           = "../../modules/observability"
  name             = var.name
  retention_days   = 90
  storage_key_arn  = module.keys.storage
  alarm_topic_arns = var.alarm_topic_arns
  balancer         = module.service.balancer
  ecs_cluster      = module.service.cluster_name
  kafka_cluster    = module.kafka.cluster
}
