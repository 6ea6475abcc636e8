// The launcher's half of a push: files to all hosts of a Fleet at once, each host at its own pace,
// only what differs. At most kPushWindowBytes are on their way to one host, and kPushHostsAtOnce
// hosts are served at a time; the rest wait. One thread: the caller's.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/files/file_pieces.h"
#include "launch/files/sent_file.h"
#include "launch/fleet/fleet.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

inline constexpr int64_t kPushWindowBytes = 1 << 20;
inline constexpr size_t kPushHostsAtOnce = 256;

struct PushFile {
    std::string local_path;
    std::string target_path;  // absolute
    std::string source_path;  // see PushOffer::source_path
    bool needs_gpu = false;   // true: only for hosts with a GPU
};

struct PushResult {
    std::string error;  // not empty: what went wrong, each file with its cause, or the host's own
    int64_t files_sent = 0;
    int64_t files_equal = 0;
    int64_t bytes_sent = 0;
};

class PushSender final : private FleetListener {
  public:
    // FLEET, connected, and FILES must outlive this object.
    PushSender(Fleet& fleet, const std::vector<PushFile>& files);
    // Sends all files to all hosts that serve; one result a host. A host that fails at a file goes
    // on with the next. Throws Error{kInput} when a file cannot be read here, kInterrupted.
    [[nodiscard]] std::vector<PushResult> run();
    // TELL is told again and again how many bytes of how many are there, over all hosts.
    void tell_progress_to(std::function<void(int64_t done, int64_t total)> tell) {
        tell_ = std::move(tell);
    }

  private:
    struct Local {
        SentFile file;
        PushOffer offer;     // id is the index
        std::string hashes;  // hashes of the chunks, made when the first host asks
    };
    enum class Phase { kIdle, kOffered, kSending, kWaiting, kOver };
    struct Host {
        Phase phase = Phase::kIdle;
        size_t file = 0;
        FilePieces pieces;                      // kSending: those that are not sent
        int64_t window_bytes = 0;               // sent and not answered
        int64_t bytes_done = 0;                 // of the files before this one
        int64_t bytes_of_file = 0;              // sent of this one
        Fleet::Time again_at;                   // kWaiting
        std::optional<Fleet::Time> busy_since;  // begin of the work on this file
        PushResult result;
    };

    void look_at_files();
    void keep_alive();
    void take_frame(size_t host, const Frame& frame) override;
    void handle(size_t host, const PushAnswer& answer);
    void begin(size_t host);
    void next_file(size_t host);
    void fail_file(size_t host, const std::string& cause);
    void send_pieces(size_t host);
    void admit();
    void tell_progress() const;
    [[nodiscard]] bool over();

    Fleet& fleet_;
    const std::vector<PushFile>& files_;
    std::vector<Local> locals_;
    std::vector<Host> hosts_;
    std::function<void(int64_t done, int64_t total)> tell_;
    std::deque<std::pair<size_t, PushAnswer>> answers_;  // taken in after the fleet's own work
    Fleet::Time last_pump_;
};

}  // namespace dslaunch::launch
