#include "launch/push/push_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "launch/files/hash_cache.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kBusyWait{200};
constexpr std::chrono::minutes kBusyMax{30};  // for a large file that another job pushes
constexpr milliseconds kAlive{100};

}  // namespace

PushSender::PushSender(Fleet& fleet, const std::vector<PushFile>& files)
    : fleet_(fleet), files_(files), hosts_(fleet.nodes().size()) {}

// Reading our own files takes time; the agents must hear us meanwhile.
void PushSender::keep_alive() {
    if (steady_clock::now() - last_pump_ < kAlive) return;
    last_pump_ = steady_clock::now();
    fleet_.pump([] { return true; }, last_pump_);
    if (fleet_.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
}

void PushSender::look_at_files() {
    HashCache cache(HashCache::default_path());
    for (const PushFile& file : files_) {
        SentFile sent(file.local_path);
        PushOffer offer = sent.facts();
        offer.id = std::ssize(locals_);
        offer.path = file.target_path;
        offer.source_path = file.source_path;
        offer.hash = sent.hash(cache, [this] { keep_alive(); });
        locals_.push_back({std::move(sent), std::move(offer), {}});
    }
    cache.save();
}

std::vector<PushResult> PushSender::run() {
    fleet_.listen(this);
    look_at_files();
    for (;;) {
        admit();
        auto wake_at = kNever;
        for (const Host& host : hosts_) {
            if (host.phase == Phase::kWaiting) wake_at = std::min(wake_at, host.again_at);
        }
        fleet_.pump([this] { return !answers_.empty() || over(); }, wake_at);
        if (fleet_.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
        while (!answers_.empty()) {
            const auto [host, answer] = std::move(answers_.front());
            answers_.pop_front();
            handle(host, answer);
        }
        tell_progress();
        if (over()) break;
    }
    fleet_.listen(nullptr);
    std::vector<PushResult> results;
    for (size_t i = 0; i < hosts_.size(); ++i) {
        const std::string& lost = fleet_.nodes()[i].error;
        if (!lost.empty()) hosts_[i].result.error = lost;
        results.push_back(std::move(hosts_[i].result));
    }
    return results;
}

void PushSender::tell_progress() const {
    if (!tell_) return;
    int64_t done = 0, total = 0;
    for (const Local& local : locals_) total += local.offer.bytes;
    for (const Host& host : hosts_)
        done += host.phase == Phase::kOver ? total : host.bytes_done + host.bytes_of_file;
    tell_(done, total * std::ssize(hosts_));
}

bool PushSender::over() {
    for (size_t i = 0; i < hosts_.size(); ++i) {
        if (!fleet_.nodes()[i].serves()) hosts_[i].phase = Phase::kOver;
        if (hosts_[i].phase != Phase::kOver) return false;
    }
    return true;
}

// Lets hosts begin, as many as may be served at once, and those whose wait is over go on.
void PushSender::admit() {
    static_cast<void>(over());
    const auto now = steady_clock::now();
    auto busy = static_cast<size_t>(std::count_if(hosts_.begin(), hosts_.end(), [](const Host& h) {
        return h.phase != Phase::kIdle && h.phase != Phase::kOver;
    }));
    for (size_t i = 0; i < hosts_.size(); ++i) {
        Host& host = hosts_[i];
        if (host.phase == Phase::kWaiting && host.again_at <= now) begin(i);
        if (host.phase == Phase::kIdle && busy < kPushHostsAtOnce) {
            ++busy;
            begin(i);
        }
    }
}

// Offers the host its next file that is for it.
void PushSender::begin(size_t index) {
    Host& host = hosts_[index];
    const bool has_gpu = fleet_.nodes()[index].hello.gpus > 0;
    while (host.file < files_.size() && files_[host.file].needs_gpu && !has_gpu) ++host.file;
    if (host.file == files_.size()) {
        host.phase = Phase::kOver;
        return;
    }
    host.phase = Phase::kOffered;
    host.window_bytes = 0;
    fleet_.send(index, FrameKind::kPushOffer, encode(locals_[host.file].offer));
}

void PushSender::next_file(size_t index) {
    Host& host = hosts_[index];
    host.bytes_done += locals_[host.file].offer.bytes;
    host.bytes_of_file = 0;
    ++host.file;
    hosts_[index].busy_since.reset();
    begin(index);
}

void PushSender::fail_file(size_t index, const std::string& cause) {
    Host& host = hosts_[index];
    if (!host.result.error.empty()) host.result.error += "; ";
    host.result.error += printable(locals_[host.file].offer.path) + ": " + cause;
}

void PushSender::take_frame(size_t host, const Frame& frame) {
    if (frame.kind != FrameKind::kPushAnswer) {
        fail(ExitCode::kInternal, "an unexpected answer to a push");
    }
    answers_.emplace_back(host, decode_push_answer(frame.payload));
}

void PushSender::handle(size_t index, const PushAnswer& answer) {
    Host& host = hosts_[index];
    if (host.phase == Phase::kOver || answer.id != static_cast<int64_t>(host.file)) return;
    Local& local = locals_[host.file];
    switch (answer.state) {
        case PushState::kEqual:
            ++host.result.files_equal;
            return next_file(index);
        case PushState::kWantsChunks:
            if (local.hashes.empty())
                local.hashes = local.file.chunk_hashes([this] { keep_alive(); });
            return fleet_.send(index, FrameKind::kPushChunks,
                               encode(PushChunks{answer.id, local.hashes}));
        case PushState::kWantsPieces:
            if (!FilePieces::has_all(answer.missing, local.offer.bytes))
                return fleet_.lose(index, "its agent asks for what the file does not have");
            host.phase = Phase::kSending;
            host.pieces = FilePieces(answer.missing, local.offer.bytes);
            return send_pieces(index);
        case PushState::kTook:
            host.window_bytes -= std::min(host.window_bytes, kPushPieceBytes);
            return send_pieces(index);
        case PushState::kDone:
            ++host.result.files_sent;
            return next_file(index);
        case PushState::kBusy:
            if (!host.busy_since) host.busy_since = steady_clock::now();
            if (steady_clock::now() - *host.busy_since > kBusyMax) {
                fail_file(index, "another push of it has not ended for 30 minutes");
                return next_file(index);
            }
            host.phase = Phase::kWaiting;
            host.again_at = steady_clock::now() + kBusyWait;
            return;
        case PushState::kFailed:
            fail_file(index, printable(answer.error));
            return next_file(index);
    }
}

void PushSender::send_pieces(size_t index) {
    Host& host = hosts_[index];
    const Local& local = locals_[host.file];
    while (host.window_bytes + kPushPieceBytes <= kPushWindowBytes) {
        const std::optional<FilePieces::Piece> next = host.pieces.next();
        if (!next) return;
        PushPiece piece;
        piece.id = local.offer.id;
        piece.offset = next->offset;
        piece.bytes = local.file.read(next->offset, next->bytes);
        host.window_bytes += kPushPieceBytes;
        host.result.bytes_sent += std::ssize(piece.bytes);
        host.bytes_of_file += std::ssize(piece.bytes);
        fleet_.send(index, FrameKind::kPushPiece, encode(piece));
    }
}

}  // namespace dslaunch::launch
