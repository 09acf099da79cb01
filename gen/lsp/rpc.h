/* rpc.h: messages of JSON-RPC over two streams (rpc.c). */
#ifndef CELLC_LSP_RPC_H
#define CELLC_LSP_RPC_H

#include "base/json.h"

/* Codes of errors, of JSON-RPC and of the protocol. */
enum {
    RPC_PARSE_ERROR = -32700, RPC_INVALID_REQUEST = -32600, RPC_NO_METHOD = -32601,
                      RPC_INVALID_PARAMS = -32602,
    RPC_INTERNAL = -32603, RPC_NOT_INITIALIZED = -32002, RPC_CANCELLED = -32800, RPC_FAILED = -32803
};

/* A request, or a notification (id NULL). Its memory is the arena's. */
typedef struct Message {
    struct Message *next;
    Arena *arena;
    const char *method;
    const Json *id, *params;      /* params NULL: none */
    bool cancelled;
} Message;

typedef struct Rpc Rpc;
Rpc *rpc_open(int in, int out);
void rpc_close(Rpc *r);

/* The next message, in order; NULL where `wait` is false and there is none yet, or when the stream has ended.
 * What is no message is answered here. A request that a later message cancelled is marked so, if that has
 * come already. */
Message *rpc_next(Rpc *r, bool wait);
bool rpc_ended(const Rpc *r);
void message_free(Message *m);

/* A result is JSON; NULL: null. */
void rpc_result(Rpc *r, const Message *m, const Buf *result);
void rpc_error(Rpc *r, const Message *m, int code, const char *fmt,
               ...) __attribute__((format(printf, 4, 5)));
void rpc_notify(Rpc *r, const char *method, const Buf *params);
/* A request to the client; its answer is read and forgotten. */
void rpc_request(Rpc *r, const char *method, const Buf *params);

#endif
