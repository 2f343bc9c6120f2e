// isolane-rpc-lab-cpp: the C++ client and server of `isolane rpc lab`, over isolane_rpc_grpc.h.
//
// It reads one JSON document a line on stdin and answers on stdout; crates/rpc/demo/src/job.rs describes them. Calls are
// issued when they are due, whether earlier ones were answered or not. Times are microseconds after the start.
//
// `.ci/languages cpp` compiles it. The parser of JSON is that of protobuf, which gRPC needs too.

#include "isolane_rpc_grpc.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <future>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

namespace {

using google::protobuf::Struct;
using grpc::ByteBuffer;
using std::chrono::microseconds;
using std::chrono::steady_clock;

const char METHOD[] = "/isolane.lab.Lab/Write";
const char OPEN[] = "/isolane.lab.Lab/Open";
constexpr std::chrono::seconds CONNECT_LIMIT(20);

[[noreturn]] void fail(const std::string &words) {
    std::fprintf(stderr, "isolane-rpc-lab-cpp: %s\n", words.c_str());
    // Threads of gRPC may still run.
    std::_Exit(3);
}

// A JSON object of the controller.
class Document {
  public:
    explicit Document(const Struct &of) : of_(of) {}

    static Struct read() {
        std::string line;
        if (!std::getline(std::cin, line)) fail("stdin ended before a document");
        Struct read;
        auto parsed = google::protobuf::util::JsonStringToMessage(line, &read);
        if (!parsed.ok()) fail("got no document: " + std::string(parsed.message()));
        return read;
    }

    double number(const char *key) const { return value(key).number_value(); }
    uint64_t count(const char *key) const { return static_cast<uint64_t>(number(key)); }
    std::string text(const char *key) const { return value(key).string_value(); }
    bool truth(const char *key) const { return value(key).bool_value(); }
    bool has_object(const char *key) const { return value(key).has_struct_value(); }
    Document object(const char *key) const { return Document(value(key).struct_value()); }

    std::vector<double> numbers(const char *key) const {
        std::vector<double> found;
        for (const auto &one : value(key).list_value().values()) found.push_back(one.number_value());
        return found;
    }

    std::vector<Document> objects(const char *key) const {
        std::vector<Document> found;
        for (const auto &one : value(key).list_value().values()) found.emplace_back(one.struct_value());
        return found;
    }

  private:
    const google::protobuf::Value &value(const char *key) const {
        auto found = of_.fields().find(key);
        if (found == of_.fields().end()) fail(std::string("the document has no ") + key);
        return found->second;
    }

    Struct of_;
};

void write(const std::string &document) {
    std::cout << document << std::endl;
}

// Returns when the controller closes stdin, or is gone.
void wait_for_end() {
    std::string line;
    while (std::getline(std::cin, line)) {
    }
}

// The job's admission as the settings file that all languages read.
std::string settings(const Document &job) {
    bool admits = job.has_object("admission");
    std::ostringstream text;
    text << std::fixed;
    text.precision(9);
    std::vector<Document> classes;
    if (admits) {
        Document admission = job.object("admission");
        classes = admission.objects("classes");
        text << "mode = \"" << (admission.truth("shadow") ? "shadow" : "enforce") << "\"\n"
             << "mtu_bytes = " << admission.count("mtu_bytes") << "\n";
    } else {
        text << "mode = \"off\"\n";
    }
    std::vector<double> dscp = job.numbers("dscp");
    for (size_t i = 0; i < dscp.size(); i++) {
        text << "[[class]]\nname = \"class-" << i << "\"\ndscp = " << static_cast<int>(dscp[i]) << "\n";
        if (i + 1 == dscp.size()) break;
        if (!admits) {
            text << "target_per_mtu = \"1s\"\n";
            continue;
        }
        if (i >= classes.size()) fail("admission.classes has fewer classes than dscp");
        const Document &one = classes[i];
        double target_ns = std::max(one.number("target_per_mtu_us") * 1000, 1.0);
        text << "target_per_mtu = \"" << static_cast<uint64_t>(target_ns) << "ns\"\n"
             << "percentile = " << one.number("percentile") << "\n"
             << "alpha = " << one.number("increment") << "\n"
             << "beta = " << one.number("decrement_per_mtu") << "\n"
             << "floor = " << one.number("floor") << "\n";
    }
    return text.str();
}

// A Poisson stream that runs only while a burst lasts: when, and in which class.
void arrivals(const Document &job, const std::function<void(uint64_t, uint32_t)> &issue) {
    std::mt19937_64 draw(job.count("seed"));
    std::exponential_distribution<double> gap(job.number("burst_calls_per_s") / 1e6);
    std::vector<double> mix = job.numbers("mix");
    std::discrete_distribution<uint32_t> pick(mix.begin(), mix.end());
    const uint64_t burst_us = job.count("burst_us"), period_us = job.count("period_us"), issue_us = job.count("issue_us");
    double clock = 0;
    for (;;) {
        clock += gap(draw);
        uint64_t us = static_cast<uint64_t>(clock);
        uint64_t at = us / burst_us * period_us + us % burst_us;
        if (at >= issue_us) return;
        issue(at, pick(draw));
    }
}

// What a client saw; calls end in threads of gRPC.
struct Results {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t issued = 0, failed = 0, late_us_max = 0;
    std::string first_error;
    std::vector<std::array<uint64_t, 5>> calls;

    std::string document(const std::vector<double> &probability) {
        // A JSON string is escaped by protobuf.
        google::protobuf::Value error;
        if (failed > 0)
            error.set_string_value(first_error);
        else
            error.set_null_value(google::protobuf::NULL_VALUE);
        std::string error_text;
        if (!google::protobuf::util::MessageToJsonString(error, &error_text).ok()) error_text = "\"no text\"";
        std::ostringstream text;
        text << "{\"issued\":" << issued << ",\"failed\":" << failed << ",\"unanswered\":" << issued - failed - calls.size()
             << ",\"first_error\":" << error_text << ",\"late_us_max\":" << late_us_max << ",\"probability\":[";
        for (size_t i = 0; i < probability.size(); i++) text << (i ? "," : "") << probability[i];
        text << "],\"calls\":[";
        for (size_t i = 0; i < calls.size(); i++) {
            text << (i ? ",[" : "[");
            for (size_t part = 0; part < calls[i].size(); part++) text << (part ? "," : "") << calls[i][part];
            text << "]";
        }
        text << "]}";
        return text.str();
    }
};

// One call of the client, which deletes itself at its end.
struct Issued {
    Issued(isolane_rpc_grpc::Channels &channels, uint32_t asked, const ByteBuffer &payload, uint64_t bytes)
        : call(channels, &context, "class-" + std::to_string(asked), bytes), stub(call.channel()), request(payload) {}

    grpc::ClientContext context;
    isolane_rpc_grpc::Call call;
    grpc::GenericStub stub;
    ByteBuffer request, response;
};

void issue_one(isolane_rpc_grpc::Channels &channels, uint32_t asked, const ByteBuffer &payload, uint64_t bytes,
               uint64_t at_us, Results &results) {
    steady_clock::time_point now = steady_clock::now();
    Issued *one = new Issued(channels, asked, payload, bytes);
    one->stub.UnaryCall(&one->context, METHOD, grpc::StubOptions(), &one->request, &one->response,
                        [one, asked, at_us, now, &results](grpc::Status status) {
                            auto took = std::chrono::duration_cast<microseconds>(steady_clock::now() - now);
                            bool lower = one->call.downgraded() || one->call.would_downgrade();
                            uint64_t ran = one->call.class_index();
                            {
                                std::lock_guard<std::mutex> guard(results.mutex);
                                if (status.ok()) {
                                    results.calls.push_back({asked, ran, lower ? 1u : 0u, at_us,
                                                             static_cast<uint64_t>(took.count())});
                                } else if (results.failed++ == 0) {
                                    results.first_error = status.error_message();
                                }
                                results.changed.notify_all();
                            }
                            delete one;
                        });
}

// Connects one class: a method that no server knows, without a decision.
void connect(isolane_rpc_grpc::Channels &channels, uint32_t class_index, const ByteBuffer &payload) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + CONNECT_LIMIT);
    context.set_wait_for_ready(true);
    grpc::GenericStub stub(channels.of(class_index));
    ByteBuffer response;
    std::promise<grpc::Status> end;
    stub.UnaryCall(&context, OPEN, grpc::StubOptions(), &payload, &response,
                   [&end](grpc::Status status) { end.set_value(std::move(status)); });
    grpc::Status status = end.get_future().get();
    if (status.error_code() != grpc::StatusCode::UNIMPLEMENTED && !status.ok())
        fail("cannot reach " + channels.destination() + " in class " + std::to_string(class_index) + ": " +
             status.error_message());
}

std::vector<double> probabilities(isolane_rpc *rpc, const std::string &to, uint32_t controlled) {
    std::vector<double> found;
    for (uint32_t i = 0; i < controlled; i++) {
        double value = 1;
        int32_t result =
            isolane_rpc_probability(rpc, reinterpret_cast<const uint8_t *>(to.data()), to.size(), i, &value);
        // A destination without a call has no probability yet.
        found.push_back(result == ISOLANE_RPC_OK ? value : 1);
    }
    return found;
}

void client() {
    Document job(Document::read());
    std::string text = settings(job), server = job.text("server");
    isolane_rpc *rpc = isolane_rpc_open(text.data(), text.size());
    if (rpc == nullptr) fail(isolane_rpc_last_error());
    size_t colon = server.rfind(':');
    if (colon == std::string::npos) fail("server " + server + " has no port");
    isolane_rpc_grpc::Channels channels(rpc, server.substr(0, colon),
                                        static_cast<uint16_t>(std::stoi(server.substr(colon + 1))));
    grpc::Slice nothing("", 0);
    for (uint32_t i = 0; i < isolane_rpc_classes(rpc); i++) connect(channels, i, ByteBuffer(&nothing, 1));
    write("{\"ready\":true}");
    uint64_t start_us = Document(Document::read()).count("start_unix_us");
    std::thread([] {
        wait_for_end();
        fail("lost its controller");
    }).detach();
    auto unix_now = std::chrono::system_clock::now().time_since_epoch();
    auto begin = steady_clock::now() + (microseconds(start_us) - std::chrono::duration_cast<microseconds>(unix_now));
    uint64_t bytes = job.count("call_bytes");
    grpc::Slice slice{std::string(bytes, 'x')};
    ByteBuffer payload(&slice, 1);
    Results results;
    arrivals(job, [&](uint64_t at_us, uint32_t asked) {
        auto due = begin + microseconds(at_us);
        std::this_thread::sleep_until(due);
        auto late = std::chrono::duration_cast<microseconds>(steady_clock::now() - due);
        uint64_t late_us = static_cast<uint64_t>(std::max<int64_t>(late.count(), 0));
        {
            std::lock_guard<std::mutex> guard(results.mutex);
            results.issued++;
            results.late_us_max = std::max(results.late_us_max, late_us);
        }
        issue_one(channels, asked, payload, bytes, at_us + late_us, results);
    });
    auto end = begin + microseconds(job.count("issue_us") + job.count("drain_us"));
    std::unique_lock<std::mutex> guard(results.mutex);
    results.changed.wait_until(guard, end, [&] { return results.failed + results.calls.size() == results.issued; });
    uint32_t controlled =
        job.has_object("admission") ? static_cast<uint32_t>(job.object("admission").objects("classes").size()) : 0;
    write(results.document(probabilities(rpc, channels.destination(), controlled)));
    // Calls without an answer must not hold the program.
    std::_Exit(0);
}

// Answers every call of METHOD with an empty message.
class Service final : public grpc::CallbackGenericService {
  public:
    std::atomic<uint64_t> calls{0}, bytes{0}, downgraded{0};

    grpc::ServerGenericBidiReactor *CreateReactor(grpc::GenericCallbackServerContext *context) override {
        bool down = context->client_metadata().count("isolane-downgraded") > 0;
        return new Reactor(*this, context->method() == METHOD, down);
    }

  private:
    class Reactor final : public grpc::ServerGenericBidiReactor {
      public:
        Reactor(Service &service, bool known, bool down) : service_(service), down_(down) {
            if (known)
                StartRead(&message_);
            else
                Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such method"));
        }

        void OnReadDone(bool ok) override {
            if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message"));
            service_.calls++;
            service_.bytes += message_.Length();
            service_.downgraded += down_;
            grpc::Slice nothing("", 0);
            answer_ = ByteBuffer(&nothing, 1);
            StartWriteAndFinish(&answer_, grpc::WriteOptions(), grpc::Status::OK);
        }

        void OnDone() override { delete this; }

      private:
        Service &service_;
        bool down_;
        ByteBuffer message_, answer_;
    };
};

void serve() {
    Document job(Document::read());
    Service service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(job.text("listen"), grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr || port == 0) fail("cannot listen on " + job.text("listen"));
    write("{\"ready\":true}");
    wait_for_end();
    server->Shutdown(std::chrono::system_clock::now());
    write("{\"calls\":" + std::to_string(service.calls) + ",\"bytes\":" + std::to_string(service.bytes) +
          ",\"downgraded\":" + std::to_string(service.downgraded) + "}");
}

} // namespace

int main(int count, char **arguments) {
    std::string role = count == 2 ? arguments[1] : "";
    try {
        if (role == "client") {
            client();
        } else if (role == "server") {
            serve();
        } else if (role == "version") {
            std::puts("isolane-rpc-lab-cpp 1");
        } else {
            std::fputs("usage: isolane-rpc-lab-cpp client|server|version; isolane rpc lab starts it\n", stderr);
            return 2;
        }
    } catch (const std::exception &error) {
        fail(error.what());
    }
    return 0;
}
