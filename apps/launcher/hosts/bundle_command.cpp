// `dslaunch bundle OUT.tar.zst [FILE…]`: packs the installation and files into one archive.
#include <fmt/core.h>
#include <poll.h>

#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "launch/push/push_sender.h"
#include "launch/supervise/job.h"
#include "launcher/hosts/bundle_archive.h"
#include "launcher/hosts/push_files.h"
#include "launcher/run/commands.h"
#include "storage/disk/output_place.h"

namespace dslaunch::launcher {
namespace {

HelpPage bundle_page() {
    return {.does =
                "Packs dslaunch, dsworker, the libraries that they need, and FILEs into one "
                "archive, to keep it or to bring it to other hosts: send it with `dslaunch push "
                "--bundle OUT.tar.zst`, or unpack it with `tar --zstd -xf OUT.tar.zst` and start "
                "bin/dslaunch. The same files always give the same archive.",
            .examples = {"dslaunch bundle dslaunch.tar.zst",
                         "dslaunch bundle job.tar.zst train.pt corpus.tokens"},
            .docs = "docs/guide/hosts.md"};
}

// Writes the bundle OUT and shows the progress. Returns its size in bytes. Throws
// Error{kInterrupted} after a signal that asks for the end.
int64_t write_with_progress(const std::string& out, std::vector<BundleFile> files) {
    constexpr int64_t kMegabyte = 1'000'000;
    const UniqueFd signals = launch::open_end_signals();
    Progress shown("bundle", "reading the files");
    bool writes = false;
    const int64_t bytes =
        write_bundle(absolute_path(out), std::move(files), [&](int64_t done, int64_t all) {
            pollfd wait{signals.get(), POLLIN, 0};
            if (::poll(&wait, 1, 0) > 0)
                fail(ExitCode::kInterrupted, "interrupted: {} was not written", printable(out));
            if (all == 0) return;
            if (!writes) shown.begin("compressing", all / kMegabyte, "MB");
            writes = true;
            shown.done(done / kMegabyte);
        });
    launch::release_end_signals();  // from here on Ctrl-C ends this program at once
    return bytes;
}

}  // namespace

int bundle_command(std::span<const std::string> arguments) {
    std::string out;
    std::vector<std::string> words;
    CommandLine app(bundle_page(), "dslaunch bundle");
    app.add("OUT.tar.zst", out, "the archive to write").required();
    bool force = false;
    app.add("--force", force, storage::kForceHelp);
    bool lists = false;
    app.add("--dry-run", lists,
            "write nothing, but print each file's name in the archive, a tab, and its path here");
    app.add("FILE", words, "files to add, or folders with everything in them");
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    if (!lists) storage::require_new_file(out, force);
    const launch::InstallationPaths paths = launch::installation_paths();
    std::vector<BundleFile> files;
    for (const launch::PushFile& file : list_installation()) {
        const bool is_library = file.target_path.starts_with(paths.libraries + "/");
        const std::string name = file.target_path.substr(file.target_path.rfind('/') + 1);
        files.push_back({file.local_path, (is_library ? "lib/dslaunch/" : "bin/") + name});
    }
    for (const std::string& word : words) {
        for (const NamedFile& file : list_files(word)) {
            files.push_back({file.local_path, "files/" + file.below});
        }
    }
    if (lists) {
        for (const BundleFile& file : files) fmt::print("{}\t{}\n", file.name, file.local_path);
        return 0;
    }
    const size_t files_all = files.size();
    const int64_t bytes = write_with_progress(out, std::move(files));
    fmt::print("{}: {} files, {}\n", printable(out), files_all, to_text(Bytes{bytes}));
    return 0;
}

}  // namespace dslaunch::launcher
