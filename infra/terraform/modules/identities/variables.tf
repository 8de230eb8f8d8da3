variable "name" {
  type        = string
  description = "First part of the name of everything that is created."
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,19}$", var.name))
    error_message = "name is 2 to 20 of a-z, 0-9 and -, and begins with a letter."
  }
}

variable "auditors" {
  type        = list(string)
  description = "ARNs of who may take the auditor's role: read sealed receipts and public keys."
  validation {
    condition     = length(var.auditors) > 0 && alltrue([for arn in var.auditors : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/", arn))])
    error_message = "auditors are ARNs of IAM roles or users; name at least one."
  }
}

variable "key_ceremony" {
  type        = list(string)
  default     = []
  description = "ARNs of who may make and exchange the log's keys. Empty but for that hour: nobody signs but the signer."
  validation {
    condition     = alltrue([for arn in var.key_ceremony : can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/", arn))])
    error_message = "key_ceremony holds ARNs of IAM roles or users."
  }
}
