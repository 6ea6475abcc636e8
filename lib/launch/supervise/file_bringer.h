// The launcher's half of copying files from a host to the same paths on this machine: a push in the
// other direction (launch/protocol/push_messages.h). An extra thread writes the files, since a disk
// may not answer. Data path: frames of the host -> [here] -> PushReceiver -> disk. All calls come
// from one thread: the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/agent/push_receiver.h"
#include "launch/files/file_writer.h"
#include "launch/fleet/fleet.h"
#include "launch/protocol/push_messages.h"

namespace dslaunch::launch {

// The files to bring, and the limits.
struct BringRules {
    std::vector<std::string> paths;  // absolute; the same on the host and on this machine
    int64_t bytes_max = 0;           // limit for all files together; if they are larger, no file is
                                     // brought
    std::chrono::milliseconds standstill_max{60'000};  // the longest time without a byte
};

// The result of FileBringer::run().
struct Brought {
    enum class State {
        kNothing,   // the host has no such file
        kHere,      // equal files are here already: the folder may be shared
        kBrought,   // they are here now
        kTooLarge,  // over bytes_max
        kFailed,    // see `error`; some files may be here
    };
    State state = State::kFailed;
    int64_t bytes = 0;  // bytes of all files that exist
    std::string error;
    ExitCode code = ExitCode::kOk;  // with kFailed: kDisk for an error on this machine, else kHosts
                                    // or kInterrupted
};

// Brings files from one host of a fleet.
class FileBringer {
  public:
    // FLEET must be connected and must outlive this object.
    FileBringer(Fleet& fleet, size_t host, BringRules rules);

    // Brings all files. At most 4 MiB are in transit or waiting for the disk. Gives up if somebody
    // asks for the end. An incomplete file is kept under its temporary name for another try, as in
    // PushReceiver.
    [[nodiscard]] Brought run();
    // Takes an answer of HOST, a frame of kind kFetched. Throws Error{kInternal} for nonsense.
    void take(size_t host, const Frame& frame);

  private:
    using Work = std::function<void(PushReceiver&)>;
    struct Inbox;

    [[nodiscard]] bool bring(const std::string& path, int64_t bytes);
    void bring_pieces(const std::string& path, const std::vector<uint32_t>& missing,
                      int64_t file_bytes);
    [[nodiscard]] std::string ask(const std::string& path, FetchPart part, int64_t bytes_to_read);
    void send(const std::string& path, FetchPart part, int64_t offset = 0, int64_t bytes = 0);
    void post(Work work, size_t bytes);
    [[nodiscard]] PushAnswer tell(const std::string& path, Work work);
    void wait(std::chrono::milliseconds patience);
    [[nodiscard]] FetchReply next_reply(FetchPart part);
    [[nodiscard]] std::optional<PushAnswer> next_answer(const std::string& path);

    Fleet& fleet_;
    size_t host_;
    BringRules rules_;
    int64_t id_ = 0;  // id of the file in all messages about it
    int asked_ = 0;   // requests that the host has not answered yet
    std::deque<FetchReply> replies_;
    std::shared_ptr<Inbox> inbox_;  // shared with the work that the writer's thread may still do
    std::shared_ptr<PushReceiver> receiver_;
    FileWriter writer_;
};

}  // namespace dslaunch::launch
