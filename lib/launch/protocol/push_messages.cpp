#include "launch/protocol/push_messages.h"

#include "launch/protocol/field_visitor.h"

namespace dslaunch::launch {

inline bool is_known(PushState state) {
    return state >= PushState::kEqual && state <= PushState::kFailed;
}

inline bool is_known(FetchPart part) {
    return part >= FetchPart::kSize && part <= FetchPart::kPiece;
}

template <typename Visitor, Is<PushOffer> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.path), visit(m.source_path), visit(m.bytes);
    visit(m.mode), visit(m.modified_ns), visit(m.hash);
}
template <typename Visitor, Is<PushChunks> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.hashes);
}
template <typename Visitor, Is<PushPiece> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.offset), visit(m.bytes);
}
template <typename Visitor, Is<PushAnswer> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.state), visit(m.missing), visit(m.offset), visit(m.error);
}
template <typename Visitor, Is<FetchRequest> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.path), visit(m.part), visit(m.offset), visit(m.bytes);
}
template <typename Visitor, Is<FetchReply> M>
void fields(Visitor& visit, M& m) {
    visit(m.id), visit(m.part), visit(m.payload), visit(m.error);
}

namespace {

constexpr const char* kWhat = "a message about a pushed file";

}  // namespace

int64_t push_chunk_count(int64_t file_bytes) {
    return (file_bytes + kPushChunkBytes - 1) / kPushChunkBytes;
}

std::string encode(const PushOffer& message) {
    return write_fields(message);
}
std::string encode(const PushChunks& message) {
    return write_fields(message);
}
std::string encode(const PushPiece& message) {
    return write_fields(message);
}
std::string encode(const PushAnswer& message) {
    return write_fields(message);
}

std::string encode(const FetchRequest& message) {
    return write_fields(message);
}
std::string encode(const FetchReply& message) {
    return write_fields(message);
}

PushOffer decode_push_offer(std::string_view bytes) {
    return read_fields<PushOffer>(bytes, kWhat);
}
PushChunks decode_push_chunks(std::string_view bytes) {
    return read_fields<PushChunks>(bytes, kWhat);
}
PushPiece decode_push_piece(std::string_view bytes) {
    return read_fields<PushPiece>(bytes, kWhat);
}
PushAnswer decode_push_answer(std::string_view bytes) {
    return read_fields<PushAnswer>(bytes, kWhat);
}
FetchRequest decode_fetch_request(std::string_view bytes) {
    return read_fields<FetchRequest>(bytes, kWhat);
}
FetchReply decode_fetch_reply(std::string_view bytes) {
    return read_fields<FetchReply>(bytes, kWhat);
}

}  // namespace dslaunch::launch
