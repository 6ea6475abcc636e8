// One of several copies of dslaunch that mpirun starts: `mpirun -np 8 dslaunch TARGET`. Copy 0
// launches the job, the first copy on each other host becomes its agent, and the remaining copies
// wait. The copies tell each other their hosts through PMIx, so no hostfile is needed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launch/hosts/hostfile.h"
#include "launch/transport/join/pmix_session.h"
#include "launcher/options/run_options.h"
#include "launcher/run/build_job.h"

namespace dslaunch::launcher {

// This process as one of the copies. One thread.
class MpiCopies {
  public:
    // Returns true if Open MPI's mpirun has started this process as one of several copies, and no
    // option gives the source of the hosts.
    [[nodiscard]] static bool is_one(const RunOptions& options, const Machine& machine);

    // Throws Error{kUsage} for options that these copies cannot use. REQUIRES: is_one().
    static void check(const RunOptions& options);

    // Connects to the other copies. Throws Error{kSetup}, with the advice to give a hostfile, if
    // there is no PMIx server.
    explicit MpiCopies(const Machine& machine);

    // Returns one entry for each host, in the order of the hosts' first copies. A host has as many
    // slots as copies. REQUIRES: launches().
    [[nodiscard]] const JoiningHosts& joining() const { return joining_; }
    // Returns the token with which the agents join. REQUIRES: launches().
    [[nodiscard]] const std::string& token() const { return token_; }
    // Returns true for copy 0.
    [[nodiscard]] bool launches() const { return session_.rank() == 0; }
    // Does the work of a copy that does not launch, until the job ends. Returns the exit code.
    [[nodiscard]] int serve();
    // Ends the exchange. REQUIRES: launches(), and the job has ended.
    void finish();

  private:
    void choose_place(uint32_t copies);
    void forget_mpi() const;

    launch::PmixSession session_;
    JoiningHosts joining_;
    std::string token_;
    std::optional<uint32_t> node_;  // the node whose agent this copy becomes
    UniqueFd held_port_;
};

}  // namespace dslaunch::launcher
