#include "launch/supervise/file_bringer.h"

#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/files/sent_file.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kPiecesAtOnce = 16;            // 4 MiB
constexpr milliseconds kDiskLook{20};        // pause between checks for the disk's answers
constexpr int64_t kHashBytesPerMs = 50'000;  // rate of a slow host

// Returns true if this machine has a file at PATH with the size and time in FACTS. The file then
// need not be brought: an earlier call has brought it, or this machine shares the disk with the
// host.
bool is_here(const std::string& path, const PushOffer& facts) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_size == facts.bytes && in_nanoseconds(status.st_mtim) == facts.modified_ns;
}

}  // namespace

struct FileBringer::Inbox {
    std::mutex mutex;
    std::deque<PushAnswer> answers;

    void add(PushAnswer answer) {
        const std::lock_guard lock(mutex);
        answers.push_back(std::move(answer));
    }
    [[nodiscard]] bool empty() {
        const std::lock_guard lock(mutex);
        return answers.empty();
    }
};

FileBringer::FileBringer(Fleet& fleet, size_t host, BringRules rules)
    : fleet_(fleet),
      host_(host),
      rules_(std::move(rules)),
      inbox_(std::make_shared<Inbox>()),
      receiver_(std::make_shared<PushReceiver>(
          [inbox = inbox_](const PushAnswer& answer) { inbox->add(answer); }, [] {})),
      writer_("the launcher's disk") {}

Brought FileBringer::run() {
    Brought brought;
    brought.state = Brought::State::kNothing;
    try {
        std::vector<std::pair<std::string, int64_t>> missing;
        for (const std::string& path : rules_.paths) {
            const PushOffer facts = decode<PushOffer>(ask(path, FetchPart::kSize, 0));
            if (facts.bytes < 0) continue;
            brought.state = Brought::State::kHere;
            brought.bytes += facts.bytes;
            if (!is_here(path, facts)) missing.emplace_back(path, facts.bytes);
        }
        if (!missing.empty() && brought.bytes > rules_.bytes_max) {
            brought.state = Brought::State::kTooLarge;
            return brought;
        }
        for (const auto& [path, bytes] : missing)
            if (bring(path, bytes)) brought.state = Brought::State::kBrought;
    } catch (const Error& error) {
        brought.state = Brought::State::kFailed;
        brought.error = error.what();
        brought.code = error.code();
    }
    return brought;
}

// Brings a file to this machine. Returns false if an equal file is already here.
bool FileBringer::bring(const std::string& path, int64_t bytes) {
    ++id_;
    PushOffer offer = decode<PushOffer>(ask(path, FetchPart::kOffer, bytes));
    if (offer.bytes != bytes)
        fail(ExitCode::kHosts, "{}: the file changed while it was being copied", path);
    offer.id = id_;
    offer.path = path;
    offer.source_path.clear();
    const PushAnswer offered =
        tell(path, [offer](PushReceiver& receiver) { receiver.offer(offer); });
    if (offered.state == PushState::kEqual) return false;
    PushChunks chunks = decode<PushChunks>(ask(path, FetchPart::kChunks, bytes));
    chunks.id = id_;
    const PushAnswer answer =
        tell(path, [chunks](PushReceiver& receiver) { receiver.take_chunks(chunks); });
    if (answer.state == PushState::kEqual) return false;
    if (answer.state != PushState::kWantsPieces)
        fail(ExitCode::kDisk, "{}: another dslaunch is writing this file", path);
    bring_pieces(path, answer.missing, offer.bytes);
    return true;
}

void FileBringer::bring_pieces(const std::string& path, const std::vector<uint32_t>& missing,
                               int64_t file_bytes) {
    FilePieces pieces(missing, file_bytes);
    std::optional<FilePieces::Piece> next = pieces.next();
    for (int under_way = 0;;) {
        for (; next && under_way < kPiecesAtOnce; ++under_way, next = pieces.next())
            send(path, FetchPart::kPiece, next->offset, next->bytes);
        wait(rules_.standstill_max);
        while (!replies_.empty()) {
            PushPiece piece = decode<PushPiece>(next_reply(FetchPart::kPiece).payload);
            const size_t bytes = piece.bytes.size();
            post([piece = std::move(piece)](PushReceiver& receiver) { receiver.take_piece(piece); },
                 bytes);
        }
        while (const auto answer = next_answer(path)) {
            if (answer->state == PushState::kDone) return;
            --under_way;
        }
    }
}

// Asks for PART of PATH and returns the payload of the reply. BYTES_TO_READ: the bytes that the
// host reads before it answers.
std::string FileBringer::ask(const std::string& path, FetchPart part, int64_t bytes_to_read) {
    send(path, part);
    wait(rules_.standstill_max + milliseconds(bytes_to_read / kHashBytesPerMs));
    return next_reply(part).payload;
}

void FileBringer::send(const std::string& path, FetchPart part, int64_t offset, int64_t bytes) {
    ++asked_;
    fleet_.send(host_, FrameKind::kFetch, encode(FetchRequest{id_, path, part, offset, bytes}));
}

// Queues WORK for the writer's thread. The receiver's answers to WORK arrive in the inbox.
void FileBringer::post(Work work, size_t bytes) {
    const bool taken = writer_.post(
        [receiver = receiver_, inbox = inbox_, id = id_, work = std::move(work)] {
            try {
                work(*receiver);
            } catch (const Error& error) {
                PushAnswer failed;
                failed.id = id;
                failed.state = PushState::kFailed;
                failed.error = error.what();
                inbox->add(std::move(failed));
            }
            return 0;
        },
        bytes);
    DSL_CHECK(taken, "more than {} pieces are in flight", kPiecesAtOnce);
}

PushAnswer FileBringer::tell(const std::string& path, Work work) {
    post(std::move(work), 0);
    for (;;) {
        wait(rules_.standstill_max);
        if (auto answer = next_answer(path)) return *std::move(answer);
    }
}

// Waits for a reply of the host or for an answer about the disk.
void FileBringer::wait(milliseconds patience) {
    const auto has_news = [this] { return !replies_.empty() || !inbox_->empty(); };
    const auto limit = steady_clock::now() + patience;
    while (!has_news()) {
        const Fleet::Node& node = fleet_.nodes()[host_];
        if (fleet_.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
        if (!node.serves())
            fail(ExitCode::kHosts, "{}", node.error.empty() ? "its agent has ended" : node.error);
        const auto now = steady_clock::now();
        if (now > limit) {
            fail(writer_.kept_bytes() > 0 ? ExitCode::kDisk : ExitCode::kHosts, "{} for {} s",
                 writer_.kept_bytes() > 0 ? "this machine's disk has accepted no data"
                                          : "the host has sent no data",
                 std::chrono::duration_cast<std::chrono::seconds>(patience).count());
        }
        static_cast<void>(fleet_.pump(has_news, std::min(limit, now + kDiskLook)));
    }
}

FetchReply FileBringer::next_reply(FetchPart part) {
    if (replies_.empty())
        fail(ExitCode::kInternal, "received a disk result that was not requested");
    FetchReply reply = std::move(replies_.front());
    replies_.pop_front();
    if (reply.part != part || reply.id != id_)
        fail(ExitCode::kHosts, "its answer does not match the request");
    if (!reply.error.empty()) fail(ExitCode::kHosts, "{}", printable(reply.error));
    return reply;
}

// Returns the receiver's next answer about a file that it writes, if there is one. Throws
// Error{kDisk} if the receiver cannot write PATH.
std::optional<PushAnswer> FileBringer::next_answer(const std::string& path) {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->answers.empty()) return std::nullopt;
    PushAnswer answer = std::move(inbox_->answers.front());
    inbox_->answers.pop_front();
    if (answer.state == PushState::kFailed) fail(ExitCode::kDisk, "{}: {}", path, answer.error);
    return answer;
}

void FileBringer::take(size_t host, const Frame& frame) {
    if (host != host_ || asked_ == 0)
        fail(ExitCode::kInternal, "received a piece of a file that was not requested");
    --asked_;
    replies_.push_back(decode<FetchReply>(frame.payload));
}

}  // namespace dslaunch::launch
