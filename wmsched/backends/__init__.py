"""Where wmsched meets TVM: each module here needs one of the two TVMs, so import the one you mean."""
