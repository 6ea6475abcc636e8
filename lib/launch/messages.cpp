#include "launch/messages.h"

#include "base/error.h"
#include "base/wire.h"

namespace dslaunch {
namespace {

// One description of each message serves both directions: a Writer or a Reader visits the fields in
// order.
class Writer {
  public:
    void operator()(const std::string& text) { wire_.string(text); }
    void operator()(int64_t number) { wire_.i64(number); }
    void operator()(uint32_t number) { wire_.u32(number); }
    void operator()(bool flag) { wire_.u8(flag ? 1 : 0); }
    template <typename Enum>
    requires std::is_enum_v<Enum>
    void operator()(Enum value) { wire_.u8(static_cast<uint8_t>(value)); }
    template <typename Item>
    void operator()(const std::vector<Item>& items) {
        wire_.u32(static_cast<uint32_t>(items.size()));
        for (const Item& item : items) visit_item(item);
    }
    [[nodiscard]] std::string take() { return wire_.bytes(); }

  private:
    void visit_item(const std::string& text) { (*this)(text); }
    void visit_item(const std::pair<std::string, std::string>& pair) {
        (*this)(pair.first);
        (*this)(pair.second);
    }
    template <typename Item>
    void visit_item(const Item& item);

    WireWriter wire_;
};

class Reader {
  public:
    Reader(std::string_view bytes, std::string_view what) : wire_(bytes, what) {}

    void operator()(std::string& text) { text = wire_.string(); }
    void operator()(int64_t& number) { number = wire_.i64(); }
    void operator()(uint32_t& number) { number = wire_.u32(); }
    void operator()(bool& flag) { flag = wire_.u8() != 0; }
    template <typename Enum>
    requires std::is_enum_v<Enum>
    void operator()(Enum& value) {
        const uint8_t number = wire_.u8();
        if (!is_valid(static_cast<Enum>(number))) {
            fail(ExitCode::kInternal, "a frame holds the unknown value {}", number);
        }
        value = static_cast<Enum>(number);
    }
    // Items are read one by one: a count that lies runs out of bytes before it runs out of memory.
    template <typename Item>
    void operator()(std::vector<Item>& items) {
        const uint32_t count = wire_.u32();
        items.clear();
        for (uint32_t i = 0; i < count; ++i) {
            items.emplace_back();
            visit_item(items.back());
        }
    }
    [[nodiscard]] bool done() const { return wire_.done(); }

  private:
    static bool is_valid(TargetKind kind) { return kind <= TargetKind::kProgram; }
    static bool is_valid(BindMode mode) { return mode <= BindMode::kCoreComplex; }
    static bool is_valid(OutputStream stream) {
        return stream == OutputStream::kStdout || stream == OutputStream::kStderr;
    }
    void visit_item(std::string& text) { (*this)(text); }
    void visit_item(std::pair<std::string, std::string>& pair) {
        (*this)(pair.first);
        (*this)(pair.second);
    }
    template <typename Item>
    void visit_item(Item& item);

    WireReader wire_;
};

template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

template <typename Visitor, Is<Hello> M>
void fields(Visitor& visit, M& m) {
    visit(m.protocol_version), visit(m.want_binary_hash), visit(m.node_name);
}
template <typename Visitor, Is<AgentHello> M>
void fields(Visitor& visit, M& m) {
    visit(m.protocol_version), visit(m.version), visit(m.binary_hash), visit(m.host_name);
    visit(m.pid), visit(m.cores), visit(m.gpus), visit(m.kernel), visit(m.arrival_address);
}
template <typename Visitor, Is<CheckRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.paths), visit(m.all_bytes);
}
template <typename Visitor, Is<FileFacts> M>
void fields(Visitor& visit, M& m) {
    visit(m.path), visit(m.bytes), visit(m.hash), visit(m.error);
}
template <typename Visitor, Is<CheckReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.files);
}
template <typename Visitor, Is<PrepareRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.address), visit(m.port), visit(m.loopback_only);
}
template <typename Visitor, Is<PrepareReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.address), visit(m.port);
}
template <typename Visitor, Is<StartRequest::Worker> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.takes_rendezvous), visit(m.command), visit(m.environment);
}
template <typename Visitor, Is<StartRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.target_kind), visit(m.inherit_all), visit(m.working_directory), visit(m.workers);
    visit(m.binding.mode), visit(m.binding.core_list);
}
template <typename Visitor, Is<SignalRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.signal_number);
}
template <typename Visitor, Is<WorkerStarted> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.pid), visit(m.environment);
}
template <typename Visitor, Is<WorkerOutput> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.stream), visit(m.lines);
}
template <typename Visitor, Is<WorkerExited> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.pid), visit(m.exit_status), visit(m.signal_number);
    visit(m.dumped_core), visit(m.start_error), visit(m.oom_evidence);
}
template <typename Visitor, Is<WorkerControl> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.kind), visit(m.payload);
}
template <typename Visitor, Is<AgentProblem> M>
void fields(Visitor& visit, M& m) {
    visit(m.code), visit(m.message);
}

template <typename Item>
void Writer::visit_item(const Item& item) {
    fields(*this, item);
}
template <typename Item>
void Reader::visit_item(Item& item) {
    fields(*this, item);
}

template <typename Message>
std::string write(const Message& message) {
    Writer writer;
    fields(writer, message);
    return writer.take();
}

template <typename Message>
Message read(std::string_view bytes, std::string_view what) {
    Message message;
    Reader reader(bytes, what);
    fields(reader, message);
    if (!reader.done()) fail(ExitCode::kInternal, "{}: bytes are left over", what);
    return message;
}

}  // namespace

#define DSL_MESSAGE(Type, what)                 \
    std::string encode(const Type& message) {   \
        return write(message);                  \
    }                                           \
    template <>                                 \
    Type decode<Type>(std::string_view bytes) { \
        return read<Type>(bytes, what);         \
    }

DSL_MESSAGE(CheckRequest, "a request to check files")
DSL_MESSAGE(CheckReply, "an answer about files")
DSL_MESSAGE(PrepareRequest, "a request for the rendezvous socket")
DSL_MESSAGE(PrepareReply, "an answer about the rendezvous socket")
DSL_MESSAGE(StartRequest, "a request to start workers")
DSL_MESSAGE(SignalRequest, "a request to signal workers")
DSL_MESSAGE(WorkerStarted, "the report of a started worker")
DSL_MESSAGE(WorkerOutput, "output of a worker")
DSL_MESSAGE(WorkerExited, "the report of an ended worker")
DSL_MESSAGE(WorkerControl, "a worker's control frame")
DSL_MESSAGE(AgentProblem, "an agent's report of a problem")

std::string encode(const Hello& message) {
    return write(message);
}
std::string encode(const AgentHello& message) {
    return write(message);
}

// A later version may have more fields: its number is what the agent needs to say so.
template <>
Hello decode<Hello>(std::string_view bytes) {
    Hello hello;
    hello.protocol_version = WireReader(bytes, "hello").u32();
    return hello.protocol_version == kAgentProtocolVersion ? read<Hello>(bytes, "hello") : hello;
}

// So has the launcher with an agent's; number and version stand first in every one.
template <>
AgentHello decode<AgentHello>(std::string_view bytes) {
    WireReader reader(bytes, "the agent's hello");
    AgentHello hello;
    hello.protocol_version = reader.u32();
    if (hello.protocol_version == kAgentProtocolVersion) {
        return read<AgentHello>(bytes, "the agent's hello");
    }
    hello.version = reader.string();
    return hello;
}

}  // namespace dslaunch
