// A gRPC client and server in C++: marks, metadata, measurement and the end by a deadline, over isolane_rpc_grpc.h.

#include "isolane_rpc_grpc.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <set>
#include <thread>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

using grpc::ByteBuffer;

static const char SETTINGS[] =
    "[[class]]\nname = \"critical\"\ndscp = 46\ntarget_per_mtu = \"20ms\"\n"
    "[[class]]\nname = \"scavenger\"\ndscp = 8\n";

// Answers /test/Write at once and /test/Never after the client's deadline; keeps what the last call carried, and the
// clients' connections.
class Service final : public grpc::CallbackGenericService {
  public:
    std::map<std::string, std::string> carried;
    std::set<std::string> peers;
    std::atomic<int> never{0};

    grpc::ServerGenericBidiReactor *CreateReactor(grpc::GenericCallbackServerContext *context) override {
        carried.clear();
        peers.insert(context->peer());
        for (const auto &[key, value] : context->client_metadata())
            carried[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
        bool is_never = context->method() == "/test/Never";
        never += is_never;
        return new Reactor(is_never, context->method() == "/test/Shed");
    }

  private:
    class Reactor final : public grpc::ServerGenericBidiReactor {
      public:
        Reactor(bool never, bool shed) : never_(never), shed_(shed) { StartRead(&message_); }
        void OnReadDone(bool ok) override {
            if (never_) return;
            if (shed_)
                Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "overloaded"));
            else if (ok)
                StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
            else
                Finish(grpc::Status::OK);
        }
        void OnCancel() override {
            if (never_) Finish(grpc::Status::CANCELLED);
        }
        void OnDone() override { delete this; }

      private:
        bool never_, shed_;
        ByteBuffer message_;
    };
};

static grpc::Status send(const isolane_rpc_grpc::Call &call, grpc::ClientContext *context, const char *method) {
    grpc::Slice slice("hello");
    ByteBuffer request(&slice, 1), response;
    grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC, call.channel());
    return grpc::internal::BlockingUnaryCall<ByteBuffer, ByteBuffer>(call.channel().get(), rpc, context, request,
                                                                     &response);
}

// The marks of this process's connections to `port`.
static std::vector<int> marks(int port) {
    std::vector<int> found;
    std::set<in_port_t> seen;
    for (int fd = 3; fd < 1024; fd++) {
        sockaddr_in peer = {}, own = {};
        socklen_t length = sizeof peer;
        if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &length) != 0 || ntohs(peer.sin_port) != port) continue;
        length = sizeof own;
        CHECK(getsockname(fd, reinterpret_cast<sockaddr *>(&own), &length) == 0);
        // A connection may have two descriptors.
        if (!seen.insert(own.sin_port).second) continue;
        int mark = 0;
        length = sizeof mark;
        CHECK(getsockopt(fd, IPPROTO_IP, IP_TOS, &mark, &length) == 0);
        found.push_back(mark >> 2);
    }
    std::sort(found.begin(), found.end());
    return found;
}

static double probability(isolane_rpc *rpc, const std::string &to) {
    double value = -1;
    CHECK(isolane_rpc_probability(rpc, reinterpret_cast<const uint8_t *>(to.data()), to.size(), 0, &value) == 0);
    return value;
}

static std::string metrics(isolane_rpc *rpc) {
    size_t length = 0;
    CHECK(isolane_rpc_metrics(rpc, nullptr, 0, &length) == 0);
    std::string text(length + 1, 0);
    CHECK(isolane_rpc_metrics(rpc, text.data(), text.size(), &length) == 0);
    return text;
}

// A server on `port`, which it chooses if it is zero.
static std::unique_ptr<grpc::Server> serve(Service &service, int &port) {
    grpc::ServerBuilder builder;
    std::string at = "127.0.0.1:" + std::to_string(port);
    builder.AddListeningPort(at, grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    CHECK(server != nullptr && port > 0);
    return server;
}

int main() {
    Service service, second, third;
    int port = 0;
    std::unique_ptr<grpc::Server> server = serve(service, port);
    isolane_rpc *rpc = isolane_rpc_open(SETTINGS, std::strlen(SETTINGS));
    CHECK(rpc != nullptr);
    {
        isolane_rpc_grpc::Channels channels(rpc, "127.0.0.1", static_cast<uint16_t>(port));
        {
            grpc::ClientContext context;
            isolane_rpc_grpc::Call call(channels, &context, "critical", 5);
            CHECK(send(call, &context, "/test/Write").ok());
            CHECK(!call.downgraded() && call.class_index() == 0);
            CHECK(service.carried["isolane-requested-class"] == "critical");
            CHECK(service.carried["isolane-class"] == "critical");
            CHECK(service.carried.count("isolane-downgraded") == 0);
            CHECK(metrics(rpc).find("_count{class=\"critical\"} 1") != std::string::npos);
        }
        // Calls of a class share one connection.
        for (int i = 0; i < 10; i++) {
            grpc::ClientContext context;
            isolane_rpc_grpc::Call call(channels, &context, "critical", 5);
            CHECK(send(call, &context, "/test/Write").ok());
        }
        CHECK(service.peers.size() == 1);
        // Calls that end by their deadline are misses: the probability falls to the floor of 0.1.
        for (int i = 0; i < 120; i++) {
            grpc::ClientContext context;
            context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
            isolane_rpc_grpc::Call call(channels, &context, "critical", 5);
            if (call.downgraded()) continue;
            CHECK(send(call, &context, "/test/Never").error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
        }
        CHECK(probability(rpc, channels.destination()) < 0.6);
        // Until one is downgraded: it runs on the other channel, and the server sees which class was requested.
        bool seen = false;
        for (int i = 0; i < 1000 && !seen; i++) {
            grpc::ClientContext context;
            isolane_rpc_grpc::Call call(channels, &context, "critical", 5);
            if (!call.downgraded()) continue;
            CHECK(send(call, &context, "/test/Write").ok());
            CHECK(call.class_index() == 1 && service.carried["isolane-class"] == "scavenger");
            CHECK(service.carried["isolane-downgraded"] == "0");
            seen = true;
        }
        CHECK(seen);
        CHECK((marks(port) == std::vector<int>{8, 46}));
        try {
            grpc::ClientContext context;
            isolane_rpc_grpc::Call call(channels, &context, "urgent", 5);
            CHECK(false);
        } catch (const std::invalid_argument &error) {
            CHECK(std::string(error.what()).find("urgent") != std::string::npos);
        }
        // A server that sheds load answers as one that is gone. Its clients open at most one connection per second.
        {
            auto begun = std::chrono::steady_clock::now();
            size_t before = service.peers.size();
            for (int i = 0; i < 100; i++) {
                grpc::ClientContext context;
                isolane_rpc_grpc::Call call(channels, &context, "scavenger", 5);
                CHECK(send(call, &context, "/test/Shed").error_code() == grpc::StatusCode::UNAVAILABLE);
            }
            auto passed = std::chrono::steady_clock::now() - begun;
            CHECK(service.peers.size() <= before + 1 + static_cast<size_t>(passed / std::chrono::seconds(1)));
        }
        // A server that sends its clients away ends a connection only with its last call. The next calls go to its successor.
        {
            grpc::ClientContext held;
            isolane_rpc_grpc::Call long_call(channels, &held, "scavenger", 5);
            int before = service.never;
            std::thread holder([&] { send(long_call, &held, "/test/Never"); });
            while (service.never == before) std::this_thread::yield();
            std::thread leaving([&] { server->Shutdown(std::chrono::system_clock::now() + std::chrono::hours(1)); });
            bool moved = false;
            std::unique_ptr<grpc::Server> successor;
            for (int i = 0; i < 1000000 && !moved; i++) {
                grpc::ClientContext context;
                isolane_rpc_grpc::Call call(channels, &context, "scavenger", 5);
                moved = !send(call, &context, "/test/Write").ok();
            }
            CHECK(moved);
            successor = serve(third, port);
            bool served = false;
            for (int i = 0; i < 1000000 && !served; i++) {
                grpc::ClientContext context;
                isolane_rpc_grpc::Call call(channels, &context, "scavenger", 5);
                served = send(call, &context, "/test/Write").ok();
            }
            CHECK(served && third.peers.size() == 1);
            held.TryCancel();
            holder.join();
            leaving.join();
            server = std::move(successor);
        }
        // A connection that the server ended is replaced, with its mark. The end of the connection arrives by itself, so
        // some calls may fail before.
        server->Shutdown(std::chrono::system_clock::now());
        server.reset();
        server = serve(second, port);
        bool again = false;
        for (int i = 0; i < 10000 && !again; i++) {
            grpc::ClientContext context;
            isolane_rpc_grpc::Call call(channels, &context, "scavenger", 5);
            again = send(call, &context, "/test/Write").ok();
        }
        CHECK(again);
        std::vector<int> now = marks(port);
        CHECK(std::count(now.begin(), now.end(), 8) == 1);
    }
    isolane_rpc_close(rpc);
    server->Shutdown(std::chrono::system_clock::now());
    std::puts("all is well");
    return 0;
}
