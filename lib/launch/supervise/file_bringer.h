// The launcher's half of bringing files from a host to this machine, to the same paths: a push the
// other way round (launch/protocol/push_messages.h). Its own thread writes the files, as a disk may
// stand still. Data path: frames of the host -> here -> PushReceiver -> disk. One thread: the
// caller's.
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

struct BringRules {
    std::vector<std::string> paths;  // absolute; equal there and here
    int64_t bytes_max = 0;           // of all together; with more, no file is brought
    std::chrono::milliseconds standstill_max{60'000};  // while no byte moves
};

struct Brought {
    enum class State {
        kNothing,   // the host has no such file
        kHere,      // the same files, or equal ones, are here: the folder may be shared
        kBrought,   // they are here now
        kTooLarge,  // over bytes_max
        kFailed,    // for the reason in `error`; some may be here
    };
    State state = State::kFailed;
    int64_t bytes = 0;  // of all that there are
    std::string error;
    ExitCode code = ExitCode::kOk;  // with kFailed: kDisk for this machine's, kHosts, kInterrupted
};

class FileBringer {
  public:
    // FLEET, connected, must outlive this object.
    FileBringer(Fleet& fleet, size_t host, BringRules rules);

    // Brings all files. At most 4 MiB are under way or waiting for the disk. A wish to end gives
    // up. A part of a file stays beside its place for another try, as PushReceiver leaves it.
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
    int64_t id_ = 0;  // of the file, in all messages about it
    int asked_ = 0;   // requests that are not answered
    std::deque<FetchReply> replies_;
    std::shared_ptr<Inbox> inbox_;  // shared with the work that the writer's thread may still do
    std::shared_ptr<PushReceiver> receiver_;
    FileWriter writer_;
};

}  // namespace dslaunch::launch
