variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
}

variable "region" {
  type        = string
  description = "AWS region."
}

variable "availability_zones" {
  type        = list(string)
  description = "Zones to spread over: three."
  validation {
    condition     = length(distinct(var.availability_zones)) == 3
    error_message = "availability_zones names three zones: with two of three copies in sync, one zone may be away."
  }
}

variable "bucket_prefix" {
  type        = string
  description = "First part of bucket names, unique in the world: a company's name, for example."
  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{2,39}$", var.bucket_prefix))
    error_message = "bucket_prefix is 3 to 40 of a-z, 0-9 and -."
  }
}

variable "administrators" {
  type        = list(string)
  description = "ARNs of who administers keys; whoever applies is among them."
}

variable "auditors" {
  type        = list(string)
  description = "ARNs of who may take the auditor's role."
}

variable "key_ceremony" {
  type        = list(string)
  default     = []
  description = "ARNs of who may make and exchange the log's keys; empty but for that hour."
}

variable "alarm_topic_arns" {
  type        = list(string)
  description = "SNS topics that are told of alarms."
}

variable "certificate_arn" {
  type        = string
  description = "Certificate of `hostname`, in ACM."
}

variable "hostname" {
  type        = string
  description = "Name that applications call."
}

variable "client_cidrs" {
  type        = list(string)
  description = "Private ranges of the applications that call the gateway."
}

variable "upstream_url" {
  type        = string
  description = "The model server, for example https://models.example.internal:8443."
}

variable "upstream" {
  type        = object({ cidrs = list(string), port = number })
  description = "Its addresses and port, for the firewall."
}

variable "image" {
  type        = string
  description = "Image made by container/Containerfile, in ECR, by digest."
}

variable "metrics_image" {
  type        = string
  description = "Image of AWS's build of OpenTelemetry (ADOT), in ECR, by digest."
}

variable "secrets" {
  type        = map(string)
  ephemeral   = true
  description = "prompt_secret and keys_json; see module service."
}

variable "secrets_version" {
  type        = number
  default     = 1
  description = "One higher each time that `secrets` change, or AWS keeps the old ones."
}

variable "grants" {
  type        = list(object({ namespace = string, role = string, user = string }))
  default     = null
  description = "Which user of Kafka may ask for what a role (cache-reader, cache-writer, cache-admin, auditor) may do in a namespace; see module topics."
}

variable "settings" {
  type        = map(string)
  default     = {}
  description = "More of the program's settings, by name: { auth = \"true\" }; see module service."
}

variable "generations" {
  type        = object({ receipt = number, log = number })
  default     = { receipt = 1, log = 1 }
  description = "How many signing keys there are of each kind: one more to exchange one. See README, rotating a key."
}

variable "running" {
  type        = bool
  default     = true
  description = "False for the first apply: see README, rolling out."
}

variable "lock_days" {
  type        = number
  description = "For how long sealed receipts can be deleted by nobody."
}

variable "replication_factor" {
  type        = number
  default     = 3
  description = "Copies of each record: as many as a lost broker must leave two of."
}

variable "retention_days" {
  type        = map(number)
  default     = {}
  description = "For how long topics keep records, by topic; see module topics."
}

variable "passwords" {
  type        = map(string)
  ephemeral   = true
  description = "Kafka password of gateway, collector, signer, sink, topics, auditor, with key_ceremony of ceremony, and of the users in grants: 32 characters or more each."
}

variable "passwords_version" {
  type        = number
  default     = 1
  description = "One higher each time that `passwords` change, or AWS keeps the old ones."
}

variable "kafka_client_cidrs" {
  type        = list(string)
  default     = []
  description = "Private ranges of the applications that speak Kafka; those that speak HTTP are in client_cidrs."
}

variable "open_until_acls" {
  type        = bool
  default     = false
  description = "True for the first apply alone: see README, rolling out."
}
