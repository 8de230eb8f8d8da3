variable "bootstrap_servers" {
  type        = string
  description = "HOST:PORT,... of the cluster's TLS listener with SASL."
  validation {
    condition     = can(regex("^[A-Za-z0-9.-]+:[0-9]{2,5}(,[A-Za-z0-9.-]+:[0-9]{2,5})*$", var.bootstrap_servers))
    error_message = "bootstrap_servers is written HOST:PORT,HOST:PORT."
  }
}

variable "mechanism" {
  type        = string
  default     = "SCRAM-SHA-512"
  description = "SASL mechanism, over TLS."
  validation {
    condition     = contains(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], var.mechanism)
    error_message = "mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512: what the program speaks."
  }
}

variable "account_secrets" {
  type        = map(string)
  description = "Secret's ARN by account (gateway, collector, signer, sink, topics): JSON with username and password."
  validation {
    condition     = alltrue([for role in ["gateway", "collector", "signer", "sink", "topics"] : can(regex("^arn:aws[a-z-]*:secretsmanager:", var.account_secrets[role]))])
    error_message = "account_secrets names an ARN of Secrets Manager for gateway, collector, signer, sink and topics."
  }
}

variable "account_secrets_key" {
  type        = string
  default     = null
  description = "ARN of the KMS key that these secrets are encrypted under; null: the installation's storage key. Its policy lets the roles that start tasks decrypt."
  validation {
    condition     = var.account_secrets_key == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[^*]+$", var.account_secrets_key))
    error_message = "account_secrets_key is the ARN of a KMS key, not of an alias."
  }
}
