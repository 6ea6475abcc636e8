#include "server/text_channel.h"

#include <utility>

namespace dslaunch::server {

std::optional<TextPiece> TextChannel::next(Duration limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return waiting_.has_value(); });
    return std::exchange(waiting_, std::nullopt);
}

void TextChannel::push(TextPiece piece) {
    {
        const std::lock_guard lock(mutex_);
        if (waiting_) {
            waiting_->text += piece.text;
            waiting_->tokens += piece.tokens;
            waiting_->end = piece.end;
        } else {
            waiting_ = std::move(piece);
        }
    }
    changed_.notify_one();
}

void TextChannel::end(TextEnd reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!waiting_) waiting_.emplace();
        waiting_->end = reason;
    }
    changed_.notify_one();
}

}  // namespace dslaunch::server
