/* Admission of remote procedure calls (Aequitas) for programs in C and in languages that can call C.
 *
 * A call asks with isolane_rpc_decide() before it is sent, goes out in the class that the decision names, and is
 * reported with isolane_rpc_complete() when its last byte is known to have arrived, or with isolane_rpc_give_up() when it
 * ended without an answer: report every attempt, or an overload in which calls exceed their deadlines is not visible. The
 * destination is the host that takes the call, not the name of a load balancer. Nothing here waits.
 *
 * Every function may be called from any thread, except that isolane_rpc_close() must be the last one for its handle.
 * Functions that return int32_t return ISOLANE_RPC_OK or one of the errors below; isolane_rpc_last_error() has the
 * words, for the calling thread. No function ends the process or lets a foreign exception out.
 *
 * Link with -lisolane_rpc.
 */
#ifndef ISOLANE_RPC_H
#define ISOLANE_RPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: isolane_rpc_abi_version() of the library must be the same. */
#define ISOLANE_RPC_ABI_VERSION 1

/* Done. */
#define ISOLANE_RPC_OK 0
/* A pointer that must not be null is null. */
#define ISOLANE_RPC_NULL_POINTER -1
/* A length is above ISOLANE_RPC_LENGTH_MAX, or 0 where something is needed. */
#define ISOLANE_RPC_BAD_LENGTH -2
/* Text that is not UTF-8. */
#define ISOLANE_RPC_BAD_TEXT -3
/* Settings that cannot be; the last error says which line, key and value. */
#define ISOLANE_RPC_BAD_SETTINGS -4
/* A class that the settings do not have. */
#define ISOLANE_RPC_BAD_CLASS -5
/* A ticket that was not given by this handle. */
#define ISOLANE_RPC_BAD_TICKET -6
/* The ticket's destination has left the table; nothing was learned. Harmless. */
#define ISOLANE_RPC_DEPARTED -7
/* The handle is null or closed. */
#define ISOLANE_RPC_BAD_HANDLE -8
/* A defect of the library. */
#define ISOLANE_RPC_INTERNAL -9

/* Longest text or name that is read, bytes. */
#define ISOLANE_RPC_LENGTH_MAX 1048576

/* An admission: settings, table of destinations, counters. */
typedef struct isolane_rpc isolane_rpc;

/* What to do with a call. */
typedef struct isolane_rpc_decision {
    /* To be passed to isolane_rpc_complete(), isolane_rpc_complete_read() or isolane_rpc_give_up(); never 0. A stream needs
     * nothing: its time is the application's. */
    uint64_t ticket;
    /* The class to send it in, from 0, the highest. */
    uint32_t class_index;
    /* The mark of that class: put it on the connection's packets. */
    uint8_t dscp;
    /* 1 where class_index is lower than the requested class: notify the application. */
    uint8_t downgraded;
    /* 1 where it would be lower, were the mode not "shadow". */
    uint8_t would_downgrade;
    /* 0. */
    uint8_t reserved;
} isolane_rpc_decision;

/* The version that the library has. */
uint32_t isolane_rpc_abi_version(void);

/* Opens an admission with the settings in text, which need not end in a zero. Null on an error. */
isolane_rpc *isolane_rpc_open(const char *text, size_t text_length);

/* Opens an admission with the settings of a file, which is read again when it changes. Null on an error. */
isolane_rpc *isolane_rpc_open_file(const char *path, size_t path_length);

/* Takes other settings over while calls run. Classes and the table's size must stay. */
int32_t isolane_rpc_reload(isolane_rpc *handle, const char *text, size_t text_length);

/* How many classes there are; 0 for a bad handle. */
uint32_t isolane_rpc_classes(isolane_rpc *handle);

/* The index of the class with that name, or one of the errors. */
int32_t isolane_rpc_class_index(isolane_rpc *handle, const char *name, size_t name_length);

/* The DSCP of a class, or one of the errors. */
int32_t isolane_rpc_class_dscp(isolane_rpc *handle, uint32_t class_index);

/* Writes the name of a class and a zero to buffer, as much of it as fits in capacity bytes, and the full length
 * without the zero to *length. */
int32_t isolane_rpc_class_name(isolane_rpc *handle, uint32_t class_index, char *buffer, size_t capacity,
                               size_t *length);

/* Decides on a call of size_bytes to a destination (any bytes, usually host:port). */
int32_t isolane_rpc_decide(isolane_rpc *handle, const uint8_t *destination, size_t destination_length,
                           uint32_t class_index, uint64_t size_bytes, isolane_rpc_decision *decision);

/* A call ended, latency_ns after it was handed to the transport: with its last byte acknowledged, or, where only the
 * response shows the end, with the response less the server's own time. */
int32_t isolane_rpc_complete(isolane_rpc *handle, uint64_t ticket, uint64_t latency_ns);

/* A call with a response of response_bytes ended, for example a read: the objective is for the packets of both directions.
 * latency_ns is without the server's own time. */
int32_t isolane_rpc_complete_read(isolane_rpc *handle, uint64_t ticket, uint64_t response_bytes, uint64_t latency_ns);

/* A call ended without an answer elapsed_ns after it was handed to the transport: by its deadline, by cancellation or with
 * its connection. Beyond its objective that is a miss; before, it says nothing. */
int32_t isolane_rpc_give_up(isolane_rpc *handle, uint64_t ticket, uint64_t elapsed_ns);

/* The admit probability of a destination and class, 0 to 1, to *probability; 1 for one that is not in the table. */
int32_t isolane_rpc_probability(isolane_rpc *handle, const uint8_t *destination, size_t destination_length,
                                uint32_t class_index, double *probability);

/* Forgets a destination that is known to be gone. */
int32_t isolane_rpc_forget(isolane_rpc *handle, const uint8_t *destination, size_t destination_length);

/* Writes the metrics (OpenMetrics text) and a zero to buffer, as much as fits in capacity bytes, and the full length
 * without the zero to *length. With a capacity of 0, buffer may be null: the call then only returns the length. */
int32_t isolane_rpc_metrics(isolane_rpc *handle, char *buffer, size_t capacity, size_t *length);

/* Writes what the threads of the handle had to say since it was last taken - the quota server does not answer, a changed
 * settings file has a mistake - one line each, the latest sixteen, and a zero to buffer, as much as fits in capacity bytes,
 * and the full length without the zero to *length. What fits as a whole is taken: the next call does not have it. */
int32_t isolane_rpc_said(isolane_rpc *handle, char *buffer, size_t capacity, size_t *length);

/* What went wrong in the calling thread's last call that failed: a zero-ended text, "" if nothing did. It stays
 * where it is until the thread's next call that fails. */
const char *isolane_rpc_last_error(void);

/* Ends an admission. Null is allowed. */
void isolane_rpc_close(isolane_rpc *handle);

#ifdef __cplusplus
}
#endif

#endif
