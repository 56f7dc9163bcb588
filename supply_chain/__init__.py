"""The packages that dlc needs and is made with: their versions and hashes, licences and vulnerabilities."""
