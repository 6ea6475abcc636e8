// The launcher's half of a push, and the installation of dslaunch on a host. The programs get the
// same paths as here. Their libraries are put into ../lib/dslaunch, relative to the programs'
// folder: the programs search this folder first. At most kPushWindowBytes are in transit to one
// host, and kPushHostsAtOnce hosts are served at a time; the rest wait. One thread: the caller's.
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

// A file to send, and its path on the hosts.
struct PushFile {
    std::string local_path;
    std::string target_path;  // absolute
    std::string source_path;  // see PushOffer::source_path
    bool needs_gpu = false;   // true: only for hosts with a GPU
};

// The folders of the installation that this program belongs to.
struct InstallationPaths {
    std::string prefix;     // /opt/x for the program /opt/x/bin/dslaunch
    std::string programs;   // /opt/x/bin
    std::string libraries;  // /opt/x/lib/dslaunch
};
// Returns the folders of this installation.
[[nodiscard]] InstallationPaths installation_paths();

// Returns dslaunch itself and its libraries, which an agent needs. Throws Error{kSetup} if a
// library is missing here.
[[nodiscard]] std::vector<PushFile> agent_files();
// Returns the agent's files and, if they are built, dsworker, its plugin for GPUs, and their
// libraries. The plugin is for hosts with GPUs. If this machine lacks libraries of the plugin, the
// plugin is left out, and NOTE says so. Throws Error{kSetup} if another library is missing here;
// also throws as lead_to_torch() does.
[[nodiscard]] std::vector<PushFile> installation_files(std::string& note);

// Returns the command that the hosts' shells run to unpack the files; ID (hexadecimal digits) makes
// the name of its temporary folder unique. Throws Error{kUsage} as launcher_path() does.
[[nodiscard]] std::string bootstrap_command(const InstallationPaths& paths, const std::string& id);

// Returns the archive of FILES, which must be below the prefix. Throws Error{kInput}.
[[nodiscard]] std::string bootstrap_archive(const InstallationPaths& paths,
                                            const std::vector<PushFile>& files);

// Sends FILES to HOSTS, eight hosts at a time. Returns for each host the reason why it failed, or
// an empty string. MAKE_TRANSPORT must return a new transport at each call. SIGNAL_FD: a signalfd;
// a signal makes this function throw Error{kInterrupted}.
[[nodiscard]] std::vector<std::string> bootstrap_hosts(
    const std::vector<HostAddress>& hosts, const std::vector<PushFile>& files,
    const std::function<std::unique_ptr<Transport>()>& make_transport, int signal_fd);

inline constexpr int64_t kPushWindowBytes = 1 << 20;
inline constexpr size_t kPushHostsAtOnce = 256;

// The result of a push for one host.
struct PushResult {
    std::string error;  // the host's error, or the failed files with their causes; empty: none
    int64_t files_sent = 0;
    int64_t files_equal = 0;
    int64_t bytes_sent = 0;
};

// Sends files to all hosts of a Fleet at the same time, to each host at its own speed. Sends only
// the parts that a host lacks.
class PushSender final : private FleetListener {
  public:
    // FLEET must be connected; FLEET and FILES must outlive this object.
    PushSender(Fleet& fleet, const std::vector<PushFile>& files);
    // Sends all files to all hosts whose agents are running; returns one result per host. A host
    // that fails at one file goes on with the next. Throws Error{kInput} if a file cannot be read
    // here, and Error{kInterrupted} after a signal.
    [[nodiscard]] std::vector<PushResult> run();
    // Calls TELL repeatedly with the number of bytes that have arrived and the total, over all
    // hosts.
    void tell_progress_to(std::function<void(int64_t done, int64_t total)> tell) {
        tell_ = std::move(tell);
    }

  private:
    struct Local {
        SentFile file;
        PushOffer offer;     // its id is the file's index
        std::string hashes;  // hashes of the chunks, made when the first host asks
    };
    enum class Phase { kIdle, kOffered, kSending, kWaiting, kOver };
    struct Host {
        Phase phase = Phase::kIdle;
        size_t file = 0;
        FilePieces pieces;                      // kSending: the pieces that are not sent yet
        int64_t window_bytes = 0;               // sent and not answered
        int64_t bytes_done = 0;                 // bytes of the files before the current one
        int64_t bytes_of_file = 0;              // bytes sent of the current file
        Fleet::Time again_at;                   // kWaiting: when the file is offered again
        std::optional<Fleet::Time> busy_since;  // when the host first answered kBusy for this file
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
    std::deque<std::pair<size_t, PushAnswer>> answers_;  // handled after the fleet's own work
    Fleet::Time last_pump_;
};

// A push to several hosts.
struct PushJob {
    std::vector<HostAddress> hosts;
    std::function<std::unique_ptr<Transport>()> make_transport;  // returns a new transport each
                                                                 // time
    std::vector<PushFile> files;
    std::string check_program;  // a program to start with --help on each host at the end; empty:
                                // none
    std::chrono::milliseconds connect_max{30'000};
    int signal_fd = -1;  // see Fleet
};

// The result of a PushJob for one host.
struct PushedHost {
    bool got_dslaunch = false;  // true: it was installed, because the host had none or a different
                                // one
    PushResult result;
};

// Pushes the files; returns one entry per host. Throws Error{kInterrupted} after a signal, and
// Error{kInput} or Error{kSetup} for errors on this machine.
[[nodiscard]] std::vector<PushedHost> run_push(const PushJob& job);

}  // namespace dslaunch::launch
