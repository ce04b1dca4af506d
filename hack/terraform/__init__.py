"""OpenTofu and a provider that knows the schema of AWS's, with which the module in manifests/terraform is tested."""
