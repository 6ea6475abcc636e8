// Passes the text of one request to the client while it is made. Pieces that nobody has read yet
// are joined, so that a slow reader costs no more memory than its text. Data path: text_service.h
// -> [here] -> api_reply.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "decoder/codec/written_text.h"

namespace dslaunch::server {

using decoder::TextEnd;
using decoder::TextPiece;

// The channel of one text. Threads: the service writes, and one other thread reads.
class TextChannel {
  public:
    // Returns the text since the last call; waits for it at most LIMIT. Returns nothing if no more
    // text was made by then.
    [[nodiscard]] std::optional<TextPiece> next(Duration limit);
    // Adds PIECE to the text that has not been read.
    void push(TextPiece piece);
    // Ends the text with REASON; allocates no memory.
    void end(TextEnd reason) noexcept;
    // Records that the reader has left.
    void leave() noexcept { has_left_ = true; }
    // Returns true if nobody will read any more.
    [[nodiscard]] bool has_left() const { return has_left_; }

  private:
    std::atomic<bool> has_left_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<TextPiece> waiting_;  // not read yet
};

}  // namespace dslaunch::server
