#include "launch/push/push_sender.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/plugin.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "launch/files/file_facts.h"
#include "launch/files/ustar.h"
#include "launch/fleet/fleet.h"
#include "launch/fleet/host_question.h"
#include "launch/machine/elf_needs.h"
#include "launch/machine/torch_place.h"
#include "launch/process/timing.h"

namespace dslaunch::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class FileList {
  public:
    // ENVIRONMENT: the environment in which the programs find their libraries.
    explicit FileList(EnvironmentList environment) : environment_(std::move(environment)) {}
    // Adds a program and its libraries. If libraries are missing here, returns their names and adds
    // nothing.
    std::string add_program(const std::string& path, bool needs_gpu) {
        const std::vector<SharedLibrary> libraries = list_libraries(path, environment_);
        std::string missing;
        for (const SharedLibrary& library : libraries) {
            if (library.path.empty()) missing += " " + library.name;
        }
        if (!missing.empty()) return missing;
        files_.push_back({path, path, {}, needs_gpu});
        for (const SharedLibrary& library : libraries) {
            if (!names_.insert(library.name).second) continue;
            files_.push_back(
                {library.path, paths_.libraries + "/" + library.name, library.path, needs_gpu});
        }
        return {};
    }
    void require_program(const std::string& path) {
        const std::string missing = add_program(path, false);
        if (missing.empty()) return;
        fail(ExitCode::kSetup, "{} needs libraries that are not on this machine:{}", path, missing);
    }
    [[nodiscard]] std::vector<PushFile> take() { return std::move(files_); }

  private:
    EnvironmentList environment_;
    InstallationPaths paths_ = installation_paths();
    std::vector<PushFile> files_;
    std::set<std::string> names_;
};

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

constexpr size_t kHostsAtOnce = 8;
constexpr std::chrono::minutes kHostMax{5};
constexpr milliseconds kTick{500};
constexpr size_t kSentFileBytesMax = size_t{1} << 30;
constexpr size_t kKeptLines = 5;

struct HostSetUp {
    bool ended = false;
    std::string error;
    std::vector<std::string> lines;
};

void take(const TransportEvent& event, HostSetUp& host) {
    if (event.kind == TransportEvent::Kind::kDiagnostic) {
        if (host.lines.size() < kKeptLines) host.lines.push_back(printable(event.text));
        return;
    }
    if (event.kind != TransportEvent::Kind::kEnded) return;
    host.ended = true;
    if (event.exit_status == 0) return;
    const std::string said = host.lines.empty() ? printable(event.text) : join(host.lines, " / ");
    host.error = event.exit_status < 0
                     ? said
                     : fmt::format("copying dslaunch to this host failed (exit {}): {}",
                                   event.exit_status, said);
}

bool is_readable(int fd) {
    pollfd entry{fd, POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
}

// Unpacks ARCHIVE on all HOSTS at the same time. Returns one text for each host: its error, or an
// empty text if it has none.
std::vector<std::string> serve(const std::vector<HostAddress>& hosts, std::string_view archive,
                               Transport& transport, int signal_fd) {
    std::vector<HostSetUp> progress(hosts.size());
    transport.start(hosts);
    for (size_t i = 0; i < hosts.size(); ++i) {
        transport.send(i, archive);
        transport.close_input(i);
    }
    const auto limit = steady_clock::now() + kHostMax;
    const auto all_ended = [&] {
        return std::all_of(progress.begin(), progress.end(), [](const auto& p) { return p.ended; });
    };
    while (!all_ended() && steady_clock::now() < limit) {
        for (const TransportEvent& event : transport.wait(kTick, signal_fd)) {
            take(event, progress[event.host]);
        }
        if (is_readable(signal_fd)) fail(ExitCode::kInterrupted, "interrupted");
    }
    std::vector<std::string> errors;
    for (size_t i = 0; i < hosts.size(); ++i) {
        if (!progress[i].ended) {
            transport.abandon(i);
            progress[i].error = fmt::format(
                "dslaunch could not be copied to this host within {} minutes", kHostMax.count());
        }
        errors.push_back(progress[i].error);
    }
    return errors;
}

constexpr milliseconds kBusyWait{200};
constexpr std::chrono::minutes kBusyMax{30};  // limit of the wait while another job pushes the same
                                              // large file
constexpr milliseconds kAlive{100};

constexpr int64_t kMib = int64_t{1} << 20;

class PushRun {
  public:
    explicit PushRun(const PushJob& job)
        : job_(job),
          hosts_(job.hosts.size()),
          progress_("push", "reaching " + counted(std::ssize(job.hosts), "host")) {}

    std::vector<PushedHost> run() {
        for (size_t i = 0; i < hosts_.size(); ++i) all_.push_back(i);
        if (send_to(all_, true)) return std::move(hosts_);
        install();
        std::vector<size_t> good;
        for (const size_t i : all_) {
            if (hosts_[i].result.error.empty()) good.push_back(i);
        }
        static_cast<void>(send_to(good, false));
        return std::move(hosts_);
    }

  private:
    // Returns false if nothing was sent because some hosts (needy_) need dslaunch first.
    bool send_to(const std::vector<size_t>& which, bool may_install) {
        if (which.empty()) return true;
        std::vector<HostAddress> addresses;
        for (const size_t i : which) addresses.push_back(job_.hosts[i]);
        const auto transport = job_.make_transport();
        Fleet fleet(addresses, *transport, job_.signal_fd);
        fleet.connect(job_.connect_max, true);
        if (fleet.interrupted()) fail(ExitCode::kInterrupted, "interrupted");
        const std::string own_hash = own_binary_hash();
        for (size_t k = 0; k < which.size(); ++k) {
            const Fleet::Node& node = fleet.nodes()[k];
            const std::string other = describe_other_processor(node.hello);
            if (!other.empty() && node.error.empty()) {
                if (sends_programs()) fleet.lose(k, "programs are not sent: " + other);
                hosts_[which[k]].result.error = node.error;
            } else if (lacks_dslaunch(node, own_hash)) {
                needy_.push_back(which[k]);
                // lose() sets this error only if the host has no error yet.
                if (!may_install)
                    fleet.lose(
                        k,
                        "its dslaunch still differs from this machine's dslaunch after the copy");
            } else if (!node.error.empty()) {
                hosts_[which[k]].result.error = node.error;
            }
        }
        if (may_install && !needy_.empty()) {
            fleet.stop();
            return false;
        }
        PushSender sender(fleet, job_.files);
        progress_.begin("sending", 0, "MiB");
        sender.tell_progress_to([this](int64_t done, int64_t total) {
            progress_.total(total / kMib);
            progress_.done(done / kMib);
        });
        std::vector<PushResult> results = sender.run();
        progress_.begin("checking which files the hosts have");
        if (!job_.check_program.empty()) check(fleet, results);
        for (size_t k = 0; k < which.size(); ++k) hosts_[which[k]].result = std::move(results[k]);
        fleet.stop();
        return true;
    }

    [[nodiscard]] bool sends_programs() const {
        return std::ranges::find(job_.files, launcher_path(), &PushFile::target_path) !=
               job_.files.end();
    }

    static bool lacks_dslaunch(const Fleet::Node& node, const std::string& own_hash) {
        if (node.greeted) return !node.error.empty() || node.hello.binary_hash != own_hash;
        return node.misunderstood || node.has_foreign_program() || node.exit_status == kNoProgram;
    }

    void install() {
        progress_.begin("installing dslaunch on " + counted(std::ssize(needy_), "host"));
        std::vector<HostAddress> addresses;
        for (const size_t i : needy_) addresses.push_back(job_.hosts[i]);
        const std::vector<std::string> errors =
            bootstrap_hosts(addresses, agent_files(), job_.make_transport, job_.signal_fd);
        for (size_t k = 0; k < needy_.size(); ++k) {
            hosts_[needy_[k]].result.error = errors[k];
            hosts_[needy_[k]].got_dslaunch = errors[k].empty();
        }
    }

    void check(Fleet& fleet, std::vector<PushResult>& results) const {
        ExecRequest request;
        request.command = {job_.check_program, "--help"};
        request.environment.inherit_all = false;
        const std::vector<ExecResult> ends = exec_on(fleet, request);
        for (size_t i = 0; i < ends.size(); ++i) {
            if (!results[i].error.empty() || ends[i].code() == 0) continue;
            const std::string said =
                ends[i].error.empty() ? printable(trim(ends[i].output)) : ends[i].error;
            results[i].error = fmt::format("all files are in place, but {} does not start: {}",
                                           job_.check_program, said);
        }
    }

    const PushJob& job_;
    std::vector<PushedHost> hosts_;
    std::vector<size_t> all_;
    std::vector<size_t> needy_;
    Progress progress_;
};

}  // namespace

InstallationPaths installation_paths() {
    const std::filesystem::path programs = std::filesystem::path(launcher_path()).parent_path();
    const std::filesystem::path prefix = programs.parent_path();
    return {prefix.string(), programs.string(), (prefix / "lib/dslaunch").string()};
}

std::vector<PushFile> agent_files() {
    FileList list(own_environment());
    list.require_program(launcher_path());
    return list.take();
}

std::vector<PushFile> installation_files(std::string& note) {
    const std::string folder = installation_paths().programs;
    const std::string worker = folder + "/dsworker";
    const std::string plugin = plugin_of(folder, "libdsl_cuda.so");
    EnvironmentList environment = own_environment();
    lead_to_torch(worker, environment);
    FileList list(environment);
    list.require_program(launcher_path());
    if (exists(worker)) list.require_program(worker);
    if (exists(plugin)) {
        const std::string missing = list.add_program(plugin, true);
        if (!missing.empty()) {
            note = "libdsl_cuda.so, the part for GPUs, is not sent, because this machine lacks" +
                   missing;
        }
    }
    return list.take();
}

std::string bootstrap_command(const InstallationPaths& paths, const std::string& id) {
    const std::string own = launcher_path();  // checked: no character is special in a shell
    utsname machine{};
    ::uname(&machine);
    const std::string temporary = paths.prefix + "/.dslaunch-" + id;
    // The libraries go first: the program must never be there without them. A host with a different
    // kind of processor keeps its old files.
    return fmt::format(
        "exec sh -c 'uname -m | {{ read m; test \"$m\" = {4} || {{ echo this host has a processor "
        "of kind $m, and this dslaunch is for {4}: install one for $m there >&2; exit 1; }}; }} || "
        "exit 1; umask 022; mkdir -p {0} {1} {2} && cd {0} && tar -xof - && mv -f l/* {2}/ && mv "
        "-f "
        "p/dslaunch {3}; s=$?; cd /; rm -rf {0}; exit $s'",
        temporary, paths.programs, paths.libraries, own, machine.machine);
}

std::string bootstrap_archive(const InstallationPaths& paths, const std::vector<PushFile>& files) {
    std::string archive;
    for (const PushFile& file : files) {
        const std::string content = read_file(file.local_path, kSentFileBytesMax);
        UstarEntry entry;
        const bool is_library = file.target_path.starts_with(paths.libraries + "/");
        entry.name = is_library ? "l/" + file.target_path.substr(paths.libraries.size() + 1)
                                : std::string("p/dslaunch");
        entry.bytes = static_cast<int64_t>(content.size());
        entry.mode = is_library ? 0644 : 0755;
        archive += ustar_header(entry) + content;
        archive.append(ustar_padding(entry.bytes), '\0');
    }
    return archive + ustar_end();
}

std::vector<std::string> bootstrap_hosts(
    const std::vector<HostAddress>& hosts, const std::vector<PushFile>& files,
    const std::function<std::unique_ptr<Transport>()>& make_transport, int signal_fd) {
    const InstallationPaths paths = installation_paths();
    const std::string archive = bootstrap_archive(paths, files);
    std::random_device device;
    const std::string command =
        bootstrap_command(paths, fmt::format("{:08x}{:08x}", device(), device()));
    std::vector<std::string> errors;
    for (size_t begin = 0; begin < hosts.size(); begin += kHostsAtOnce) {
        std::vector<HostAddress> some(hosts.begin() + static_cast<std::ptrdiff_t>(begin),
                                      hosts.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                          begin + kHostsAtOnce, hosts.size())));
        for (HostAddress& host : some) host.command = command;
        const auto transport = make_transport();
        for (std::string& error : serve(some, archive, *transport, signal_fd)) {
            errors.push_back(std::move(error));
        }
    }
    return errors;
}

PushSender::PushSender(Fleet& fleet, const std::vector<PushFile>& files)
    : fleet_(fleet), files_(files), hosts_(fleet.nodes().size()) {}

// Handles the agents' frames. Called often while our own files are read, which may take long, so
// that the connections stay alive.
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

// Continues with hosts whose waiting time is over. Begins with further hosts until kPushHostsAtOnce
// hosts are being served.
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

// Offers the host at INDEX its next file. If the host has no GPU, skips files that only hosts with
// GPUs need.
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
        fail(ExitCode::kInternal, "received an unexpected answer to a push");
    }
    answers_.emplace_back(host, decode<PushAnswer>(frame.payload));
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
                return fleet_.lose(
                    index, "the agent of this host requested bytes beyond the end of a file");
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
                fail_file(index, "another push of this file has been running for 30 minutes");
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

std::vector<PushedHost> run_push(const PushJob& job) {
    return PushRun(job).run();
}

}  // namespace dslaunch::launch
