/* taken.c: the words that a name of a spec cannot be in generated text. In: a name. Out: whether C, C++ or a macro of their
 * headers has it. This is the one place that knows them: emit_common.c makes other names for those that are taken,
 * and the manifest says which. */
#include <ctype.h>
#include <string.h>

#include "emit.h"

/* Of C to C23, as gcc and clang have it. */
static const char *const words_c[] = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
    "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
    "volatile", "while", "bool", "true", "false", "alignas", "alignof", "constexpr", "nullptr",
    "static_assert", "thread_local", "typeof", "typeof_unqual", "asm", "fortran", "noreturn",
};

/* Of C++ to C++26: a header of a cell is C++ too, and kernels are. */
static const char *const words_cpp[] = {
    "and", "and_eq", "asm", "bitand", "bitor", "catch", "char16_t", "char32_t", "char8_t", "class",
    "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constinit",
    "contract_assert", "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable",
    "namespace", "new", "noexcept", "not", "not_eq", "operator", "or", "or_eq", "private", "protected",
    "public", "reflexpr", "reinterpret_cast", "requires", "static_cast", "synchronized", "template", "this",
    "throw", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq",
};

/* Types that the header uses: in C++ a member of that name would change what they mean. Variables of the C
 * library, which a local one would hide. */
static const char *const words_types[] = {
    "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t",
    "ptrdiff_t", "max_align_t", "nullptr_t", "signgam", "timezone", "daylight", "tzname", "environ",
    "uint", "ushort", "ulong", "u_char", "u_short", "u_int", "u_long", "quad_t", "u_quad_t", "fsid_t", "loff_t", "ino_t", "dev_t",
    "gid_t", "mode_t", "nlink_t", "uid_t", "off_t", "pid_t", "id_t", "ssize_t", "daddr_t", "caddr_t", "key_t", "clock_t", "time_t",
    "clockid_t", "timer_t", "suseconds_t", "fd_set", "div_t", "ldiv_t", "float_t", "double_t",
};

/* Macros of the headers of C and POSIX that are no function: a program may include these before a cell's header. */
static const char *const words_macros[] = {
    "AIO_PRIO_DELTA_MAX", "BIG_ENDIAN", "BOOL_MAX", "BOOL_WIDTH", "BUFSIZ", "BYTE_ORDER",
    "CHARCLASS_NAME_MAX", "CHAR_BIT", "CHAR_MAX", "CHAR_MIN", "CHAR_WIDTH", "CLOCKS_PER_SEC",
    "COLL_WEIGHTS_MAX", "DECIMAL_DIG", "DELAYTIMER_MAX", "E2BIG", "EACCES", "EADDRINUSE", "EADDRNOTAVAIL",
    "EADV", "EAFNOSUPPORT", "EAGAIN", "EALREADY", "EBADE", "EBADF", "EBADFD", "EBADMSG", "EBADR", "EBADRQC",
    "EBADSLT", "EBFONT", "EBUSY", "ECANCELED", "ECHILD", "ECHRNG", "ECOMM", "ECONNABORTED", "ECONNREFUSED",
    "ECONNRESET", "EDEADLK", "EDEADLOCK", "EDESTADDRREQ", "EDOM", "EDOTDOT", "EDQUOT", "EEXIST", "EFAULT",
    "EFBIG", "EHOSTDOWN", "EHOSTUNREACH", "EHWPOISON", "EIDRM", "EILSEQ", "EINPROGRESS", "EINTR", "EINVAL",
    "EIO", "EISCONN", "EISDIR", "EISNAM", "EKEYEXPIRED", "EKEYREJECTED", "EKEYREVOKED", "EL2HLT",
    "EL2NSYNC", "EL3HLT", "EL3RST", "ELIBACC", "ELIBBAD", "ELIBEXEC", "ELIBMAX", "ELIBSCN", "ELNRNG",
    "ELOOP", "EMEDIUMTYPE", "EMFILE", "EMLINK", "EMSGSIZE", "EMULTIHOP", "ENAMETOOLONG", "ENAVAIL",
    "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENFILE", "ENOANO", "ENOBUFS", "ENOCSI", "ENODATA", "ENODEV",
    "ENOENT", "ENOEXEC", "ENOKEY", "ENOLCK", "ENOLINK", "ENOMEDIUM", "ENOMEM", "ENOMSG", "ENONET", "ENOPKG",
    "ENOPROTOOPT", "ENOSPC", "ENOSR", "ENOSTR", "ENOSYS", "ENOTBLK", "ENOTCONN", "ENOTDIR", "ENOTEMPTY",
    "ENOTNAM", "ENOTRECOVERABLE", "ENOTSOCK", "ENOTSUP", "ENOTTY", "ENOTUNIQ", "ENXIO", "EOF", "EOPNOTSUPP",
    "EOVERFLOW", "EOWNERDEAD", "EPERM", "EPFNOSUPPORT", "EPIPE", "EPROTO", "EPROTONOSUPPORT", "EPROTOTYPE",
    "ERANGE", "EREMCHG", "EREMOTE", "EREMOTEIO", "ERESTART", "ERFKILL", "EROFS", "ESHUTDOWN",
    "ESOCKTNOSUPPORT", "ESPIPE", "ESRCH", "ESRMNT", "ESTALE", "ESTRPIPE", "ETIME", "ETIMEDOUT",
    "ETOOMANYREFS", "ETXTBSY", "EUCLEAN", "EUNATCH", "EUSERS", "EWOULDBLOCK", "EXDEV", "EXFULL",
    "EXIT_FAILURE", "EXIT_SUCCESS", "EXPR_NEST_MAX", "FD_SETSIZE", "FILENAME_MAX", "FOPEN_MAX", "F_LOCK",
    "F_OK", "F_TEST", "F_TLOCK", "F_ULOCK", "HOST_NAME_MAX", "I", "INFINITY", "INT_MAX", "INT_MIN",
    "INT_WIDTH", "IOV_MAX", "LINE_MAX", "LITTLE_ENDIAN", "LLONG_MAX", "LLONG_MIN", "LLONG_WIDTH",
    "LOGIN_NAME_MAX", "LONG_BIT", "LONG_LONG_MAX", "LONG_LONG_MIN", "LONG_MAX", "LONG_MIN", "LONG_WIDTH",
    "L_INCR", "L_SET", "L_XTND", "L_ctermid", "L_cuserid", "L_tmpnam", "MATH_ERREXCEPT", "MATH_ERRNO",
    "MAXFLOAT", "MAX_CANON", "MAX_INPUT", "MB_CUR_MAX", "MB_LEN_MAX", "MINSIGSTKSZ", "MQ_PRIO_MAX", "M_E", "M_Ef", "M_El", "M_Ef32",
    "M_Ef32x", "M_Ef64", "M_Ef64x", "M_Ef128", "i386",
    "M_Ef", "M_El", "M_PI", "NAME_MAX", "NAN", "NFDBITS", "NGREG", "NGROUPS_MAX", "NSIG", "NULL", "NZERO",
    "ONCE_FLAG_INIT", "PATH_MAX", "PDP_ENDIAN", "PIPE_BUF", "PTHREAD_DESTRUCTOR_ITERATIONS",
    "PTHREAD_KEYS_MAX", "PTHREAD_STACK_MIN", "PTRDIFF_MAX", "PTRDIFF_MIN", "PTRDIFF_WIDTH", "P_tmpdir",
    "RAND_MAX", "RE_DUP_MAX", "RTSIG_MAX", "R_OK", "SCHAR_MAX", "SCHAR_MIN", "SCHAR_WIDTH", "SEEK_CUR",
    "SEEK_DATA", "SEEK_END", "SEEK_HOLE", "SEEK_SET", "SEM_VALUE_MAX", "SHRT_MAX", "SHRT_MIN", "SHRT_WIDTH",
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT",
    "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX",
    "SIGRTMIN", "SIGSEGV", "SIGSTKFLT", "SIGSTKSZ", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP",
    "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
    "SIG_ATOMIC_MAX", "SIG_ATOMIC_MIN", "SIG_ATOMIC_WIDTH", "SIG_BLOCK", "SIG_DFL", "SIG_ERR", "SIG_HOLD",
    "SIG_IGN", "SIG_SETMASK", "SIG_UNBLOCK", "SIZE_MAX", "SIZE_WIDTH", "SNAN", "SSIZE_MAX", "SS_DISABLE",
    "SS_ONSTACK", "STDERR_FILENO", "STDIN_FILENO", "STDOUT_FILENO", "TIMER_ABSTIME", "TIME_UTC", "TMP_MAX",
    "TSS_DTOR_ITERATIONS", "TTY_NAME_MAX", "UCHAR_MAX", "UCHAR_WIDTH", "UINT_MAX", "UINT_WIDTH",
    "ULLONG_MAX", "ULLONG_WIDTH", "ULONG_LONG_MAX", "ULONG_MAX", "ULONG_WIDTH", "USHRT_MAX", "USHRT_WIDTH",
    "WCHAR_MAX", "WCHAR_MIN", "WCHAR_WIDTH", "WCONTINUED", "WEOF", "WEXITED", "WINT_MAX", "WINT_MIN",
    "WINT_WIDTH", "WNOHANG", "WNOWAIT", "WORD_BIT", "WSTOPPED", "WUNTRACED", "W_OK", "X_OK", "complex",
    "errno", "i386", "linux", "math_errhandling", "sa_handler", "sa_sigaction", "si_addr", "si_addr_lsb",
    "si_arch", "si_band", "si_call_addr", "si_fd", "si_int", "si_lower", "si_overrun", "si_pid", "si_pkey",
    "si_ptr", "si_status", "si_stime", "si_syscall", "si_timerid", "si_uid", "si_upper", "si_utime",
    "si_value", "sigev_notify_attributes", "sigev_notify_function", "stderr", "stdin", "stdout", "unix",
};

/* What the plain C calls or has at file scope. These are of no harm in a header, but stay as they have been. */
static const char *const words_called[] = {
    "imaginary", "exp", "log", "log1p", "expm1", "sqrt", "fabs", "sin", "cos", "atan2", "tanh", "erf",
    "erfc", "pow", "abs", "memcpy", "memset", "malloc", "calloc", "free", "real", "step", "main", "max_of",
    "min_of", "sign", "sigmoid", "logsigmoid", "silu", "relu", "gelu", "gelu_tanh", "softplus", "softsign",
    "elu", "clamp", "square", "floor_div", "floor_mod", "t", "whole_quotient", "whole_remainder", "floor",
    "rint", "to_bf16", "to_f16", "T", "Step", "Heap", "Store", "take", "times", "signbit", "isnan", "isinf",
    "assert",
};

/* The same, of the plain C alone. */
static const char *const words_reference[] = {
    "log_hypot", "root_re", "root_im", "exp_re", "exp_im", "scale_of",
    "ste", "override", "whole_sum", "whole_difference", "whole_product", "whole_power", "atan", "ceil", "round", "trunc",
    "leaky_relu", "hardtanh", "mish", "remainder_of", "fmod",
    "leave", "append", "put", "fill", "at_step", "release", "isfinite", "isinf",
    "signbit", "frexp", "ldexp", "scalbn", "hypot", "memmove", "fmin", "fmax", "logb", "cosh", "sinh",
    "tan", "cbrt", "fma", "copysign",
};

/* How families of macros begin, whose names have no small letters. */
static const char *const families[] = {
    "FLT_", "DBL_", "LDBL_", "FE_", "FP_", "LC_", "ATOMIC_", "CLOCK_", "HUGE_VAL", "M_PI", "M_LN",
    "M_LOG", "M_SQRT", "M_1_PI", "M_2_PI", "M_2_SQRTPI", "SNAN", "ADJ_", "MOD_", "STA_", "SEGV_", "SI_",
    "BUS_", "ILL_", "FPE_", "CLD_", "TRAP_", "POLL_", "SA_", "SIGEV_", "REG_", "BC_", "CLOSE_RANGE_",
    "RENAME_", "XATTR_", "NL_", "INT8_", "INT16_", "INT32_", "INT64_", "INT_FAST", "INT_LEAST", "INTMAX_",
    "INTPTR_", "UINT8_", "UINT16_", "UINT32_", "UINT64_", "UINT_FAST", "UINT_LEAST", "UINTMAX_", "UINTPTR_",
    "CELL_", "CUDA_", "CUDART_",
};

static void take_all(Names *n, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        names_take(n, words[i]);
}

#define TAKE_ALL(n, words) take_all(n, words, sizeof words / sizeof *words)

void words_take(Names *n)
{
    TAKE_ALL(n, words_c);
    TAKE_ALL(n, words_cpp);
    TAKE_ALL(n, words_types);
    TAKE_ALL(n, words_macros);
    TAKE_ALL(n, words_called);
}

void words_take_reference(Names *n)
{
    TAKE_ALL(n, words_reference);
}

/* PRId64, SCNxFAST8 */
static bool is_format(const char *s)
{
    return (strncmp(s, "PRI", 3) == 0 || strncmp(s, "SCN", 3) == 0) && s[3] && strchr("diouxX", s[3]) &&
           (isdigit((unsigned char)s[4]) || isupper((unsigned char)s[4]));
}

bool is_word_by_form(const char *s)
{
    if ((s[0] == '_' && (s[1] == '_' || isupper((unsigned char)s[1]))) || strncmp(s, "CELLC_", 6) == 0 || is_format(s))
        return true;
    size_t capitals = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    bool mathematical = strncmp(s, "M_", 2) == 0;        /* M_PIf, M_SQRT2l */
    if (s[capitals] && !mathematical)
        return false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strncmp(s, families[i], strlen(families[i])) == 0)
            return true;
    return false;
}
