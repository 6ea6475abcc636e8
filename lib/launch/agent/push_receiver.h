// The host's half of a push: receives one file at a time, chunk by chunk, under a temporary name in
// the target's folder, and renames it when it is complete. After an interrupted push, the next push
// needs to send only the rest. One thread: the agent's; blocks while it reads, writes and syncs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/files/file_facts.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

// Receives the files of one push, one after another.
class PushReceiver {
  public:
    // Each message is answered by one or more calls of ANSWER. Only pieces of a file that was given
    // up get no answer. ALIVE is called every few megabytes while files are read.
    PushReceiver(std::function<void(const PushAnswer&)> answer, std::function<void()> alive)
        : answer_(std::move(answer)), alive_(std::move(alive)) {}

    // These functions answer kFailed if a file cannot be written (no permission, a full disk, a
    // link or a folder in its place). They throw Error{kInternal} if the launcher sends messages in
    // the wrong order.
    void offer(const PushOffer& offer);
    void take_chunks(const PushChunks& chunks);
    void take_piece(const PushPiece& piece);

  private:
    void make_folders();
    void open_part();
    void reserve_space();
    void keep_what_is_there(const std::string& hashes);
    void begin_chunk();
    void finish();
    void give_up(const std::string& cause);
    void reply(PushState state, int64_t offset = 0);
    [[nodiscard]] bool is_there(const std::string& path, bool is_target);
    [[nodiscard]] std::string hash_chunk(int fd, int64_t chunk, std::string& bytes) const;
    [[nodiscard]] int64_t chunk_bytes(int64_t chunk) const;

    std::function<void(const PushAnswer&)> answer_;
    std::function<void()> alive_;
    PushOffer offer_;
    bool wants_chunks_ = false;
    UniqueFd folder_;
    UniqueFd part_;  // locked: nobody else writes it
    std::string name_, part_name_;
    std::string hashes_;
    std::vector<uint32_t> missing_;
    size_t next_missing_ = 0;
    int64_t next_offset_ = 0;
    int64_t unsynced_bytes_ = 0;
    Sha256 chunk_hash_;
};

}  // namespace dslaunch::launch
