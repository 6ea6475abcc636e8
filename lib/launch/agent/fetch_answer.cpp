#include "launch/agent/fetch_answer.h"

#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "launch/files/hash_cache.h"
#include "launch/files/sent_file.h"

namespace dslaunch::launch {
namespace {

// True: there is no file at PATH.
bool is_missing(const std::string& path) {
    return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

std::string payload_of(const FetchRequest& request, const std::function<void()>& alive) {
    if (request.part == FetchPart::kSize && is_missing(request.path)) {
        PushOffer none;
        none.bytes = -1;
        return encode(none);
    }
    const SentFile file(request.path);
    switch (request.part) {
        case FetchPart::kSize:
            return encode(file.facts());
        case FetchPart::kOffer: {
            PushOffer offer = file.facts();
            offer.id = request.id;
            offer.path = request.path;
            HashCache cache(HashCache::default_path());
            offer.hash = file.hash(cache, alive);
            cache.save();
            return encode(offer);
        }
        case FetchPart::kChunks:
            return encode(PushChunks{request.id, file.chunk_hashes(alive)});
        case FetchPart::kPiece:
            break;
    }
    if (request.offset < 0 || request.bytes < 1 || request.bytes > kPushPieceBytes)
        fail(ExitCode::kInternal, "no piece of a file has {} bytes at {}", request.bytes,
             request.offset);
    return encode(PushPiece{request.id, request.offset, file.read(request.offset, request.bytes)});
}

}  // namespace

FetchReply answer_fetch(const FetchRequest& request, const std::function<void()>& alive) {
    FetchReply reply{request.id, request.part, {}, {}};
    try {
        reply.payload = payload_of(request, alive);
    } catch (const Error& error) {
        if (error.code() == ExitCode::kInternal) throw;
        reply.error = error.what();
    }
    return reply;
}

}  // namespace dslaunch::launch
