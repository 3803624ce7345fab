"""CertificateSigningRequests: approved ones are signed by the plane's own authority."""

from mooring.local.controllers.signing.controller import CertificateSigner
from mooring.local.controllers.signing.issuing import IssueError, Issuer, refused

__all__ = ["CertificateSigner", "IssueError", "Issuer", "refused"]
