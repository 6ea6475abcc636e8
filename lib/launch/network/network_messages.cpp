#include "launch/network/network_messages.h"

#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

template <typename Visitor, Is<ListenRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.addresses), visit(m.port), visit(m.node), visit(m.key);
}
template <typename Visitor, Is<ListenReply::Place> M>
void fields(Visitor& visit, M& m) {
    visit(m.address), visit(m.numeric), visit(m.interface), visit(m.port), visit(m.error);
}
template <typename Visitor, Is<ListenReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.places), visit(m.clock_ns);
}
template <typename Visitor, Is<ProbeRequest::Target> M>
void fields(Visitor& visit, M& m) {
    visit(m.node), visit(m.address), visit(m.port);
}
template <typename Visitor, Is<ProbeRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.targets), visit(m.time_max_ms), visit(m.key);
}
template <typename Visitor, Is<ProbeReply::Result> M>
void fields(Visitor& visit, M& m) {
    visit(m.node), visit(m.address), visit(m.own_address), visit(m.interface), visit(m.error);
}
template <typename Visitor, Is<ProbeReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.results);
}
template <typename Visitor, Is<ChooseRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.address);
}

std::string encode(const ListenRequest& message) {
    return write_fields(message);
}
std::string encode(const ListenReply& message) {
    return write_fields(message);
}
std::string encode(const ProbeRequest& message) {
    return write_fields(message);
}
std::string encode(const ProbeReply& message) {
    return write_fields(message);
}
std::string encode(const ChooseRequest& message) {
    return write_fields(message);
}

ListenRequest decode_listen_request(std::string_view bytes) {
    return read_fields<ListenRequest>(bytes, "a request to listen");
}
ListenReply decode_listen_reply(std::string_view bytes) {
    return read_fields<ListenReply>(bytes, "an answer about listening");
}
ProbeRequest decode_probe_request(std::string_view bytes) {
    return read_fields<ProbeRequest>(bytes, "a request to probe");
}
ProbeReply decode_probe_reply(std::string_view bytes) {
    return read_fields<ProbeReply>(bytes, "an answer about probes");
}
ChooseRequest decode_choose_request(std::string_view bytes) {
    return read_fields<ChooseRequest>(bytes, "the choice of a network");
}

}  // namespace dslaunch::launch
