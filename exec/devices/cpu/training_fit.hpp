// Whether a Program can be trained on CPUs: asked once, before any thread is started.
#pragma once

#include "core/program/program.hpp"
#include "exec/devices/cpu/device.hpp"

namespace pipewright::exec::cpu {

/// The ranks that divide the layers of the Program's stages.
StageDivision division_of(const Program& program, const Training& training);

/// Throws InputError if the Program is no whole order, does not have the training's stages and
/// micro-batches, or lets the replicas of a stage drift apart: each OPT of theirs needs a
/// REDUCE_GRAD after the last weight gradient, and all replicas the same sequence of both. Where
/// ranks divide layers, the parts of its actions have to be those of the layers.
void require_fit(const Program& program, const Training& training);

}  // namespace pipewright::exec::cpu
