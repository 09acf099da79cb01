/* The fake driver's own: what FAKE_CUDA says that this function of the driver answers; 0: it succeeds. */
int fake_error(const char *name);
