"""XProf's XSpace, for TensorBoard's Profile tab.

Comes in: a Trace. Goes out: a file per host. Promise: device time in XProf's tables is that of
the capture, and what XProf cannot show is a finding.
"""
