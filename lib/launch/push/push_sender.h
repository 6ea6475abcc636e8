// The launcher's half of a push, and the parts of dslaunch on a host: the programs, at the same
// paths as here, and their libraries in ../lib/dslaunch beside the programs' folder, where they
// look first. At most kPushWindowBytes are on their way to one host, and kPushHostsAtOnce hosts are
// served at a time; the rest wait. One thread: the caller's.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/files/sent_file.h"
#include "launch/fleet/fleet.h"
#include "launch/protocol/push_messages.h"
#include "launch/transport/transport.h"

namespace dslaunch::launch {

struct PushFile {
    std::string local_path;
    std::string target_path;  // absolute
    std::string source_path;  // see PushOffer::source_path
    bool needs_gpu = false;   // true: only for hosts with a GPU
};

// The folders of the installation that this program belongs to.
struct InstallationPaths {
    std::string prefix;     // /opt/x of /opt/x/bin/dslaunch
    std::string programs;   // /opt/x/bin
    std::string libraries;  // /opt/x/lib/dslaunch
};
[[nodiscard]] InstallationPaths installation_paths();

// Returns dslaunch itself and its libraries, which an agent needs. Throws Error{kSetup}: a library
// is missing here.
[[nodiscard]] std::vector<PushFile> agent_files();
// Returns the agent's files and dsworker, its plugin for GPUs, and their libraries, as far as they
// are built. The plugin is for hosts with GPUs. If this machine lacks libraries of the plugin, it
// is left out, and NOTE says so.
[[nodiscard]] std::vector<PushFile> installation_files(std::string& note);

// Returns the command for the hosts' shells; ID (hexadecimal digits) makes its temporary folder its
// own. Throws Error{kUsage} as launcher_path().
[[nodiscard]] std::string bootstrap_command(const InstallationPaths& paths, const std::string& id);

// Returns the archive of FILES, which must lie below the prefix. Throws Error{kInput}.
[[nodiscard]] std::string bootstrap_archive(const InstallationPaths& paths,
                                            const std::vector<PushFile>& files);

// Sends FILES to HOSTS, eight at a time. Returns each host's reason for a failure, or empty.
// SIGNAL_FD as in Fleet: Error{kInterrupted} after a signal. MAKE_TRANSPORT: a new one each time.
[[nodiscard]] std::vector<std::string> bootstrap_hosts(
    const std::vector<HostAddress>& hosts, const std::vector<PushFile>& files,
    const std::function<std::unique_ptr<Transport>()>& make_transport, int signal_fd);

inline constexpr int64_t kPushWindowBytes = 1 << 20;
inline constexpr size_t kPushHostsAtOnce = 256;

struct PushResult {
    std::string error;  // not empty: what went wrong, each file with its cause, or the host's own
    int64_t files_sent = 0;
    int64_t files_equal = 0;
    int64_t bytes_sent = 0;
};

// Sends files to all hosts of a Fleet at once, each host at its own pace, only what differs.
class PushSender final : private FleetListener {
  public:
    // FLEET, connected, and FILES must outlive this object.
    PushSender(Fleet& fleet, const std::vector<PushFile>& files);
    // Sends all files to all hosts that serve; returns one result a host. A host that fails at a
    // file goes on. Throws Error{kInput} when a file cannot be read here, kInterrupted.
    [[nodiscard]] std::vector<PushResult> run();
    // Tells TELL again and again how many bytes of how many are there, over all hosts.
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

struct PushJob {
    std::vector<HostAddress> hosts;
    std::function<std::unique_ptr<Transport>()> make_transport;  // a new one each time
    std::vector<PushFile> files;
    std::string check_program;  // not empty: started with --help on each host at the end
    std::chrono::milliseconds connect_max{30'000};
    int signal_fd = -1;  // see Fleet
};

struct PushedHost {
    bool got_dslaunch = false;  // true: the host had none, or another one
    PushResult result;
};

// Pushes; returns one entry a host. Throws Error{kInterrupted} after a signal; kInput, kSetup for
// errors here.
[[nodiscard]] std::vector<PushedHost> run_push(const PushJob& job);

}  // namespace dslaunch::launch
