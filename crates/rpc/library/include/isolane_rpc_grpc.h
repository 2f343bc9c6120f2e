/* Admission of remote procedure calls (Aequitas) for clients of gRPC in C++, over isolane_rpc.h. C++17.
 *
 * isolane_rpc_grpc::Channels has one gRPC channel per class to one backend, each with the DSCP of its class. A Call decides
 * on one RPC, puts the metadata of Isolane's other languages on it, and names the channel to send it on. An interceptor on
 * every channel measures the RPC and reports its end, so the program only makes a Call before each RPC:
 *
 *     isolane_rpc *rpc = isolane_rpc_open_file(path, strlen(path));
 *     isolane_rpc_grpc::Channels channels(rpc, "10.0.0.2", 50051);
 *     grpc::ClientContext context;
 *     isolane_rpc_grpc::Call call(channels, &context, "critical", request.ByteSizeLong());
 *     grpc::Status status = Storage::NewStub(call.channel())->Write(&context, request, &response);
 *     if (call.downgraded()) ...
 *
 * The Call must live until the RPC has ended. What the other languages measure is measured here: a unary RPC that succeeds,
 * less the server's own time (isolane-server-us); an RPC that ends by its deadline, by cancellation or with its connection,
 * once it lasted longer than its objective. RPCs that the server fails and streams report nothing.
 *
 * Limits: gRPC before GRPC_ARG_DSCP (1.51 of Debian 12 is) cannot mark a socket. There the class's socket is opened here, so
 * host must be a numeric address, and the channel has no TLS. A connection that was lost is opened again by the next Call.
 * Link with -lisolane_rpc and `pkg-config --libs grpc++`.
 */
#ifndef ISOLANE_RPC_GRPC_H
#define ISOLANE_RPC_GRPC_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>

#include "isolane_rpc.h"

namespace isolane_rpc_grpc {

/* An RPC between its decision and its end. */
struct Pending {
    uint64_t ticket = 0;
    uint32_t class_index = 0;
    /* The number of the channel that it is sent on. */
    uint64_t channel = 0;
};

/* The pending RPCs of all channels of one Channels, by their context. */
class Register {
  public:
    void put(const grpc::ClientContext *context, Pending pending) {
        std::lock_guard<std::mutex> guard(mutex_);
        pending_[context] = pending;
    }

    /* Takes the RPC out; a ticket of 0 means that no Call was made for this context. */
    Pending take(const grpc::ClientContext *context) {
        std::lock_guard<std::mutex> guard(mutex_);
        auto found = pending_.find(context);
        if (found == pending_.end()) return Pending();
        Pending pending = found->second;
        pending_.erase(found);
        return pending;
    }

    /* A call of the class on the channel of this number found no server. */
    void put_lost(uint32_t class_index, uint64_t channel) {
        std::lock_guard<std::mutex> guard(mutex_);
        uint64_t &latest = lost_[class_index];
        if (channel > latest) latest = channel;
    }

    /* Whether a call of the class on the channel of this number found no server. */
    bool is_lost(uint32_t class_index, uint64_t channel) {
        std::lock_guard<std::mutex> guard(mutex_);
        auto found = lost_.find(class_index);
        return found != lost_.end() && found->second == channel;
    }

  private:
    std::mutex mutex_;
    std::map<uint32_t, uint64_t> lost_;
    std::map<const grpc::ClientContext *, Pending> pending_;
};

/* Measures one RPC and reports its end. */
class Measure final : public grpc::experimental::Interceptor {
  public:
    Measure(isolane_rpc *rpc, std::shared_ptr<Register> all, Pending pending, bool unary)
        : rpc_(rpc), all_(std::move(all)), pending_(pending), unary_(unary), begin_(Clock::now()) {}

    void Intercept(grpc::experimental::InterceptorBatchMethods *methods) override {
        using Point = grpc::experimental::InterceptionHookPoints;
        if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_INITIAL_METADATA)) begin_ = Clock::now();
        if (methods->QueryInterceptionHookPoint(Point::POST_RECV_INITIAL_METADATA))
            read_server_time(methods->GetRecvInitialMetadata());
        if (methods->QueryInterceptionHookPoint(Point::POST_RECV_STATUS)) {
            read_server_time(methods->GetRecvTrailingMetadata());
            end(*methods->GetRecvStatus());
        }
        methods->Proceed();
    }

  private:
    using Clock = std::chrono::steady_clock;
    using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

    void read_server_time(const Metadata *metadata) {
        if (metadata == nullptr) return;
        auto found = metadata->find("isolane-server-us");
        if (found == metadata->end()) return;
        std::string text(found->second.data(), found->second.size());
        server_ns_ = std::strtoull(text.c_str(), nullptr, 10) * 1000;
    }

    void end(const grpc::Status &status) {
        if (pending_.ticket != 0 && status.error_code() == grpc::StatusCode::UNAVAILABLE)
            all_->put_lost(pending_.class_index, pending_.channel);
        if (pending_.ticket == 0 || !unary_) return;
        auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
        uint64_t elapsed = static_cast<uint64_t>(passed.count());
        switch (status.error_code()) {
            case grpc::StatusCode::OK:
                isolane_rpc_complete(rpc_, pending_.ticket, elapsed > server_ns_ ? elapsed - server_ns_ : 0);
                break;
            case grpc::StatusCode::DEADLINE_EXCEEDED:
            case grpc::StatusCode::CANCELLED:
            case grpc::StatusCode::UNAVAILABLE:
                isolane_rpc_give_up(rpc_, pending_.ticket, elapsed);
                break;
            default:
                break;
        }
        pending_.ticket = 0;
    }

    isolane_rpc *rpc_;
    std::shared_ptr<Register> all_;
    Pending pending_;
    bool unary_;
    Clock::time_point begin_;
    uint64_t server_ns_ = 0;
};

/* Makes a Measure for each RPC that has a Call. */
class Measures final : public grpc::experimental::ClientInterceptorFactoryInterface {
  public:
    Measures(isolane_rpc *rpc, std::shared_ptr<Register> pending) : rpc_(rpc), pending_(std::move(pending)) {}

    grpc::experimental::Interceptor *CreateClientInterceptor(grpc::experimental::ClientRpcInfo *info) override {
        bool unary = info->type() == grpc::experimental::ClientRpcInfo::Type::UNARY;
        return new Measure(rpc_, pending_, pending_->take(info->client_context()), unary);
    }

  private:
    isolane_rpc *rpc_;
    std::shared_ptr<Register> pending_;
};

/* One channel per class to one backend. */
class Channels {
  public:
    /* host is a numeric IPv4 or IPv6 address. Throws std::invalid_argument for an address or a handle that is none. */
    Channels(isolane_rpc *rpc, const std::string &host, uint16_t port,
             std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials())
        : rpc_(rpc), port_(port), credentials_(std::move(credentials)), pending_(std::make_shared<Register>()) {
        in6_addr six;
        in_addr four;
        bool is_six = inet_pton(AF_INET6, host.c_str(), &six) == 1;
        if (!is_six && inet_pton(AF_INET, host.c_str(), &four) != 1)
            throw std::invalid_argument("host " + host + " is not a numeric address; resolve the name first");
        if (isolane_rpc_classes(rpc) == 0)
            throw std::invalid_argument("the isolane_rpc handle is null or closed; pass one of isolane_rpc_open_file()");
        host_ = host;
        is_six_ = is_six;
        destination_ = (is_six ? "[" + host + "]" : host) + ":" + std::to_string(port);
        opened_.resize(isolane_rpc_classes(rpc));
    }

    ~Channels() {
        for (Opened &opened : opened_) opened.close();
    }

    isolane_rpc *rpc() const { return rpc_; }
    const std::string &destination() const { return destination_; }
    Register &pending() { return *pending_; }

    /* The channel of a class, which is opened at its first use and after a loss of its connection. */
    std::shared_ptr<grpc::Channel> of(uint32_t class_index) { return numbered(class_index).first; }

    /* The same, and the number of the channel: each has another one. */
    std::pair<std::shared_ptr<grpc::Channel>, uint64_t> numbered(uint32_t class_index) {
        std::lock_guard<std::mutex> guard(mutex_);
        Opened &opened = opened_.at(class_index);
        if (opened.is_lost(pending_->is_lost(class_index, opened.number))) opened.close();
        if (opened.channel == nullptr) {
            open(class_index, opened);
            opened.number = ++channels_;
            opened.since = std::chrono::steady_clock::now();
        }
        return {opened.channel, opened.number};
    }

  private:
    /* A channel. One over a socket of this program cannot connect again, and gRPC does not report its state: watch is a
     * second descriptor of its socket, -1 for an ordinary channel. */
    struct Opened {
        std::shared_ptr<grpc::Channel> channel;
        uint64_t number = 0;
        std::chrono::steady_clock::time_point since;
        int watch = -1;

        /* A server that sends its clients away keeps the connection until all its calls have ended. Only a call shows it, which
         * finds no server: reported. An overloaded server answers the same, so a report opens at most one connection per second. */
        bool is_lost(bool reported) const {
#ifdef GRPC_ARG_DSCP
            (void)reported;
            return false;
#else
            /* An ordinary channel, for want of a marked connection. */
            if (watch < 0) return true;
            if (reported && std::chrono::steady_clock::now() - since >= std::chrono::seconds(1)) return true;
            tcp_info info = {};
            socklen_t length = sizeof info;
            return getsockopt(watch, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state != TCP_ESTABLISHED;
#endif
        }

        void close() {
            channel.reset();
            if (watch >= 0) ::close(watch);
            watch = -1;
        }
    };

    std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> measures() {
        std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> made;
        made.push_back(std::make_unique<Measures>(rpc_, pending_));
        return made;
    }

    void open(uint32_t class_index, Opened &opened) {
        int dscp = isolane_rpc_class_dscp(rpc_, class_index);
        grpc::ChannelArguments arguments;
        /* Channels of equal arguments would share one connection, and so one mark. */
        arguments.SetInt("isolane.class", static_cast<int>(class_index));
#ifdef GRPC_ARG_DSCP
        arguments.SetInt(GRPC_ARG_DSCP, dscp);
#else
        int fd = connect_marked(dscp);
        opened.watch = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0 && opened.watch < 0) ::close(fd);
        if (opened.watch >= 0) {
            opened.channel = grpc::experimental::CreateCustomInsecureChannelWithInterceptorsFromFd(destination_, fd,
                                                                                                   arguments, measures());
            return;
        }
        /* Without a connection, the ordinary channel reports why, as for any backend that is down. */
#endif
        opened.channel =
            grpc::experimental::CreateCustomChannelWithInterceptors(destination_, credentials_, arguments, measures());
    }

    /* A connection whose packets have the mark from the first one on; -1 on an error. */
    int connect_marked(int dscp) const {
        int fd = socket(is_six_ ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) return -1;
        int mark = dscp << 2, on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, is_six_ ? IPPROTO_IPV6 : IPPROTO_IP, is_six_ ? IPV6_TCLASS : IP_TOS, &mark, sizeof mark);
        sockaddr_in6 six = {};
        sockaddr_in four = {};
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port_);
        four.sin_family = AF_INET;
        four.sin_port = htons(port_);
        inet_pton(AF_INET6, host_.c_str(), &six.sin6_addr);
        inet_pton(AF_INET, host_.c_str(), &four.sin_addr);
        const sockaddr *address =
            is_six_ ? reinterpret_cast<const sockaddr *>(&six) : reinterpret_cast<const sockaddr *>(&four);
        if (connect(fd, address, is_six_ ? sizeof six : sizeof four) != 0 ||
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
            close(fd);
            return -1;
        }
        return fd;
    }

    isolane_rpc *rpc_;
    std::string host_, destination_;
    uint16_t port_;
    bool is_six_ = false;
    std::shared_ptr<grpc::ChannelCredentials> credentials_;
    std::shared_ptr<Register> pending_;
    std::mutex mutex_;
    std::vector<Opened> opened_;
    uint64_t channels_ = 0;
};

/* The decision on one RPC. */
class Call {
  public:
    /* Decides on an RPC of size_bytes that requests the class of this name. Throws std::invalid_argument for a class that the
     * settings do not have. */
    Call(Channels &channels, grpc::ClientContext *context, const std::string &class_name, uint64_t size_bytes)
        : channels_(channels), context_(context) {
        int32_t asked = isolane_rpc_class_index(channels.rpc(), class_name.data(), class_name.size());
        if (asked < 0) throw std::invalid_argument("class " + class_name + ": " + isolane_rpc_last_error());
        const std::string &to = channels.destination();
        int32_t result = isolane_rpc_decide(channels.rpc(), reinterpret_cast<const uint8_t *>(to.data()), to.size(),
                                            static_cast<uint32_t>(asked), size_bytes, &decision_);
        if (result != ISOLANE_RPC_OK) throw std::invalid_argument(isolane_rpc_last_error());
        context->AddMetadata("isolane-requested-class", class_name);
        context->AddMetadata("isolane-class", name_of(decision_.class_index));
        if (downgraded()) context->AddMetadata("isolane-downgraded", std::to_string(asked));
        Pending pending;
        pending.ticket = decision_.ticket;
        pending.class_index = decision_.class_index;
        std::tie(channel_, pending.channel) = channels.numbered(decision_.class_index);
        channels.pending().put(context, pending);
    }

    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call() { channels_.pending().take(context_); }

    /* The channel to send the RPC on. */
    const std::shared_ptr<grpc::Channel> &channel() const { return channel_; }
    uint32_t class_index() const { return decision_.class_index; }
    bool downgraded() const { return decision_.downgraded != 0; }
    bool would_downgrade() const { return decision_.would_downgrade != 0; }

  private:
    std::string name_of(uint32_t class_index) const {
        char name[256] = "";
        size_t length = 0;
        isolane_rpc_class_name(channels_.rpc(), class_index, name, sizeof name, &length);
        return name;
    }

    Channels &channels_;
    grpc::ClientContext *context_;
    isolane_rpc_decision decision_ = {};
    std::shared_ptr<grpc::Channel> channel_;
};

} // namespace isolane_rpc_grpc

#endif
