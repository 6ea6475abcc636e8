#include "launch/protocol/messages.h"

#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

inline bool is_known(TargetKind kind) {
    return kind <= TargetKind::kProgram;
}
inline bool is_known(BindMode mode) {
    return mode <= BindMode::kCoreComplex;
}
inline bool is_known(OutputStream stream) {
    return stream == OutputStream::kStdout || stream == OutputStream::kStderr;
}

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
    visit(m.expanded);
}
template <typename Visitor, Is<StartRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.target_kind), visit(m.inherit_all), visit(m.working_directory), visit(m.workers);
    visit(m.defaults);
    visit(m.binding.mode), visit(m.binding.core_list), visit(m.machine_ranks);
}
template <typename Visitor, Is<SignalRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.signal_number);
}
template <typename Visitor, Is<StopRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.come_again);
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
    visit(m.dumped_core), visit(m.start_error), visit(m.oom_evidence), visit(m.told_to_end);
}
template <typename Visitor, Is<WorkerControl> M>
void fields(Visitor& visit, M& m) {
    visit(m.rank), visit(m.kind), visit(m.payload);
}
template <typename Visitor, Is<AgentProblem> M>
void fields(Visitor& visit, M& m) {
    visit(m.code), visit(m.message);
}

#define DSL_MESSAGE(Type, what)                 \
    std::string encode(const Type& message) {   \
        return write_fields(message);           \
    }                                           \
    template <>                                 \
    Type decode<Type>(std::string_view bytes) { \
        return read_fields<Type>(bytes, what);  \
    }

DSL_MESSAGE(CheckRequest, "a request to check files")
DSL_MESSAGE(CheckReply, "an answer about files")
DSL_MESSAGE(PrepareRequest, "a request for the rendezvous socket")
DSL_MESSAGE(PrepareReply, "an answer about the rendezvous socket")
DSL_MESSAGE(StartRequest, "a request to start workers")
DSL_MESSAGE(SignalRequest, "a request to signal workers")
DSL_MESSAGE(StopRequest, "a request to end")
DSL_MESSAGE(WorkerStarted, "the report of a started worker")
DSL_MESSAGE(WorkerOutput, "output of a worker")
DSL_MESSAGE(WorkerExited, "the report of an ended worker")
DSL_MESSAGE(WorkerControl, "a worker's control frame")
DSL_MESSAGE(AgentProblem, "an agent's report of a problem")

std::string encode(const Hello& message) {
    return write_fields(message);
}
std::string encode(const AgentHello& message) {
    return write_fields(message);
}

// A later version may have more fields: its number is what the agent needs to say so.
template <>
Hello decode<Hello>(std::string_view bytes) {
    Hello hello;
    hello.protocol_version = WireReader(bytes, "hello").u32();
    return hello.protocol_version == kAgentProtocolVersion ? read_fields<Hello>(bytes, "hello")
                                                           : hello;
}

// The launcher reads an agent's hello the same way; number and version stand first in every hello.
template <>
AgentHello decode<AgentHello>(std::string_view bytes) {
    WireReader reader(bytes, "the agent's hello");
    AgentHello hello;
    hello.protocol_version = reader.u32();
    if (hello.protocol_version == kAgentProtocolVersion) {
        return read_fields<AgentHello>(bytes, "the agent's hello");
    }
    hello.version = reader.string();
    return hello;
}

}  // namespace dslaunch::launch
