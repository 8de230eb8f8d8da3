variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "image" {
  type        = string
  description = "Image made by container/Containerfile, in a repository of ECR, by its digest."
  validation {
    condition     = can(regex("^[0-9]{12}\\.dkr\\.ecr\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image is ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME@sha256:DIGEST: a tag may be moved to something else."
  }
}

variable "metrics_image" {
  type        = string
  description = "Image of AWS's build of OpenTelemetry (ADOT) in the same registry, by its digest."
  validation {
    condition     = can(regex("^[0-9]{12}\\.dkr\\.ecr\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$", var.metrics_image))
    error_message = "metrics_image is ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME@sha256:DIGEST: a tag may be moved to something else."
  }
}

variable "running" {
  type        = bool
  default     = true
  description = "False for the first apply: topics, ACLs and keys are made before anything starts."
}

variable "roles" {
  type        = map(object({ name = string, arn = string }))
  description = "Roles by what they are for, as module identities gives them."
}

variable "execution_roles" {
  type        = map(object({ name = string, arn = string }))
  description = "Roles that start tasks."
}

variable "network" {
  type = object({
    vpc_id          = string
    subnet_ids      = list(string)
    security_groups = map(string)
  })
  description = "Private subnets, and a security group a role."
}

variable "kafka" {
  type = object({
    bootstrap_servers   = string
    mechanism           = string
    account_secrets     = map(string)
    account_secrets_key = optional(string)
  })
  description = "How the log is reached."
}

variable "topics" {
  type = object({
    prefix     = string
    partitions = number
    plan       = string
  })
  description = "Topics, as module topics gives them."
}

variable "keys" {
  type = object({
    signing = map(string)
    uris    = map(string)
    payload = string
    storage = string
  })
  description = "Keys, as module keys gives them."
}

variable "buckets" {
  type        = map(object({ name = string, arn = string }))
  description = "Buckets: audit, snapshots, data_keys."
}

variable "access_log_bucket" {
  type        = string
  description = "Bucket that takes the load balancer's access logs."
}

variable "lock_days" {
  type        = number
  description = "For how long the sink locks what it seals."
}

variable "log_groups" {
  type        = map(object({ name = string, arn = string }))
  description = "Log groups: gateway, signer, sink, topics, metrics."
}

variable "certificate_arn" {
  type        = string
  description = "Certificate of the gateway's name, in ACM."
  validation {
    condition     = can(regex("^arn:aws[a-z-]*:acm:[a-z0-9-]+:[0-9]{12}:certificate/", var.certificate_arn))
    error_message = "certificate_arn is the ARN of a certificate in ACM."
  }
}

variable "hostname" {
  type        = string
  description = "Name that applications call, and that the certificate is for."
  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$", var.hostname))
    error_message = "hostname is a full name such as llm.example.internal."
  }
}

variable "upstream_url" {
  type        = string
  description = "The model server."
  validation {
    condition     = can(regex("^https?://[^/?#@]+(/v1)?/?$", var.upstream_url))
    error_message = "upstream_url is written like https://models.example.internal:8443, without path, query or password."
  }
}

variable "namespace" {
  type        = string
  default     = "default"
  description = "Namespace that is served."
  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9._-]{0,62}$", var.namespace))
    error_message = "namespace is 1 to 63 of a-z, 0-9, . _ - and begins with a letter or a number."
  }
}

variable "secrets" {
  type        = map(string)
  ephemeral   = true
  description = "prompt_secret: 64 hex characters that key prompt hashes. keys_json: what `cachemind audit keys init` wrote, `{}` before that. metrics_key: with auth, the key of the reader of metrics."
  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.secrets["prompt_secret"])) && can(jsondecode(var.secrets["keys_json"]))
    error_message = "secrets holds prompt_secret (64 hex characters, as `openssl rand -hex 32` prints) and keys_json (JSON)."
  }
  validation {
    condition     = lookup(var.settings, "auth", "false") != "true" || can(regex("^[!-~]{16,}$", var.secrets["metrics_key"]))
    error_message = "secrets holds metrics_key where settings has auth: `cachemind keys create --role cache-admin --namespace cachemind.access` prints it."
  }
}

variable "secrets_version" {
  type        = number
  default     = 1
  description = "Raise it to set the secrets anew."
  validation {
    condition     = var.secrets_version >= 1 && floor(var.secrets_version) == var.secrets_version
    error_message = "secrets_version is a whole number from 1, one higher each time that secrets change."
  }
}

variable "gateway" {
  type = object({
    cpu              = optional(number, 4096)
    memory_mib       = optional(number, 16384)
    disk_gib         = optional(number, 100)
    workers          = optional(number, 2)
    min              = optional(number, 2)
    max              = optional(number, 8)
    requests_per_min = optional(number, 60000)
  })
  default     = {}
  description = "A gateway's task: size, HTTP workers, how few and how many, and the requests a minute at which another one is started."
  validation {
    condition     = var.gateway.disk_gib >= 21 && var.gateway.disk_gib <= 200
    error_message = "gateway.disk_gib is from 21 to 200: what a Fargate task can have."
  }
  validation {
    condition     = var.gateway.min >= 1 && var.gateway.max >= var.gateway.min
    error_message = "gateway.min is at least 1, and gateway.max not below it."
  }
}

variable "worker" {
  type = object({
    cpu        = optional(number, 1024)
    memory_mib = optional(number, 4096)
    min        = optional(number, 2)
    max        = optional(number, 4)
    lag        = optional(number, 5000)
  })
  default     = {}
  description = "A signer's or a sink's task: size, how few and how many, and the records of lag at which another one is started."
  validation {
    condition     = var.worker.min >= 1 && var.worker.max >= var.worker.min
    error_message = "worker.min is at least 1, and worker.max not below it."
  }
}

variable "settings" {
  type        = map(string)
  default     = {}
  description = "More of the program's settings, by name: { ttl_s = \"3600\" }."
  validation {
    condition     = alltrue([for name in keys(var.settings) : can(regex("^[a-z][a-z0-9_]*$", name))])
    error_message = "settings names settings in small letters, such as ttl_s."
  }
  validation {
    # How Kafka is reached, what this module sets by itself, and secrets, which come from
    # Secrets Manager and never in a plain variable.
    condition = !anytrue([
      for name in keys(var.settings) :
      can(regex("^(kafka_(bootstrap_servers|security_protocol|sasl_.*|.*ssl_.*)|audit_.*|pkcs11_.*|sink_(url|dir|retention_.*))$", name))
      || can(regex("^(data_dir|data_keys_url|host|log_dir|namespace|on_wal_failure|partitions|payload_key|port|production|secret_file|snapshot_url|topic_prefix|upstream|wal_ack|workers|access_key|insecure)$", name))
    ])
    error_message = "settings does not change how Kafka is reached, what is audited, where things are kept, or what has a variable of its own."
  }
}
