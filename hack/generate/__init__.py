"""Files that are made from their sources: the CRD, pages of the docs, dashboards and alerts, locks."""
