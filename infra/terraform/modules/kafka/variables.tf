variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "subnet_ids" {
  type        = list(string)
  description = "One private subnet a zone; brokers are spread over them evenly."
  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "subnet_ids names at least two subnets."
  }
}

variable "security_group_id" {
  type        = string
  description = "Group of the brokers."
}

variable "storage_key_arn" {
  type        = string
  description = "KMS key for disks, logs and passwords."
}

variable "kafka_version" {
  type        = string
  default     = "3.9.x.kraft"
  description = "Version as MSK writes it."
  validation {
    condition     = can(regex("^[0-9]+\\.[0-9]+\\.([0-9]+|x)(\\.kraft)?$", var.kafka_version))
    error_message = "kafka_version is written like 3.9.x.kraft."
  }
}

variable "instance_type" {
  type        = string
  default     = "kafka.m7g.large"
  description = "Size of a broker."
  validation {
    condition     = startswith(var.instance_type, "kafka.")
    error_message = "instance_type is written like kafka.m7g.large."
  }
}

variable "brokers" {
  type        = number
  default     = 3
  description = "Number of brokers, a multiple of the number of zones."
  validation {
    condition     = var.brokers >= 3 && var.brokers % length(var.subnet_ids) == 0
    error_message = "brokers is at least 3, and a multiple of the number of subnets: each record is on three brokers."
  }
}

variable "disk_gib" {
  type        = number
  default     = 200
  description = "Disk of a broker."
  validation {
    condition     = var.disk_gib >= 10 && var.disk_gib <= 16384
    error_message = "disk_gib is from 10 to 16384."
  }
}

variable "replication_factor" {
  type        = number
  default     = 3
  description = "Copies of each record."
  validation {
    condition     = var.replication_factor >= 3
    error_message = "replication_factor is at least 3: with fewer, an acknowledged record can be lost with a broker."
  }
}

variable "open_until_acls" {
  type        = bool
  default     = false
  description = "True for the first apply alone: Kafka's own rule that what has no ACL is open to who has a password."
}

variable "log_retention_days" {
  type        = number
  description = "How long brokers' logs are kept."
}

variable "accounts" {
  type        = set(string)
  description = "Who logs in: a role's name is its user name."
}

variable "passwords" {
  type        = map(string)
  ephemeral   = true
  description = "A password an account. Never in a plan or a state; sent when passwords_version is raised."
  validation {
    condition     = alltrue([for password in values(var.passwords) : length(password) >= 32])
    error_message = "each password has at least 32 characters."
  }
  validation {
    condition     = length(setsubtract(var.accounts, keys(var.passwords))) == 0
    error_message = "passwords has one for each account: ${join(", ", var.accounts)}."
  }
}

variable "passwords_version" {
  type        = number
  default     = 1
  description = "Raise it to set the passwords anew."
  validation {
    condition     = var.passwords_version >= 1 && floor(var.passwords_version) == var.passwords_version
    error_message = "passwords_version is a whole number from 1, one higher each time that passwords change."
  }
}
