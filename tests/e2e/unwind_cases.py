"""Hard cases of unwinding: first and last instructions, code without unwind information, odd frame contents, PLT, entry."""

import chains
import harness
from chains import BUILDS, GUESSING_OF, MODES_OF
from harness import Target

GUESSING = GUESSING_OF["fp"]


class Edges(chains.Case):
    """main;outer;mid_caller;X where X is at its first or last instructions."""

    SIT = ("sit_at_entry", "sit_after_push", "sit_after_mov", "sit_in_body", "sit_after_pop", "sit_after_leave")
    TINY = ("tiny_plain", "tiny_other_mov", "tiny_endbr", "tiny_leave", "tiny_saved", "tiny_repz_ret", "tiny_two_ends")
    # tiny_tail jumps there.
    TAIL_TARGET = ("tail_target",)
    # Where a frame pointer alone cannot tell: after a pop without a return behind it, and without a frame at all.
    OPEN = ("tiny_tail", "tiny_frameless")

    HANDLER = r"?__restore_rt|\[libc\.so\.6\];step_handler;step_spin"

    def of(self, names, caller="mid_caller", below=""):
        return [f"main;outer;{caller};{name}{below}" for name in names]

    def test_with_cfi(self):
        self.check("edges_cfi sit", *self.of(self.SIT))
        self.check("edges_cfi tiny", *self.of(self.TINY), rare=self.of(self.TAIL_TARGET + self.OPEN), at_least=200)
        self.check("edges_cfi leaf", *self.of(["leaf_in_c"]))

    def test_sitting_without_cfi(self):
        """The caller can be missing where the frame pointer is not set up, but nothing else is wrong."""
        for program in ("edges_nocfi", "edges_bare"):
            self.check(f"{program} sit", *self.of(self.SIT[2:4]), *self.of(self.SIT[:2] + self.SIT[4:], "?mid_caller"), modes=GUESSING)

    def test_every_instruction_without_cfi(self):
        """Prologues and epilogues are seen for what they are: the caller is there."""
        for program in ("edges_nocfi", "edges_bare"):
            rare = [*self.of(self.TAIL_TARGET), *self.of(self.OPEN, "?mid_caller")]
            self.check(f"{program} tiny", *self.of(self.TINY), rare=rare, modes=GUESSING, at_least=200)

    def test_interrupted_at_every_instruction(self):
        """What a signal handler interrupts is at its first and last instructions, too."""
        for program, modes, caller in (("edges_cfi", chains.MODES, "step_caller"), ("edges_nocfi", GUESSING, "?step_caller"),
                                       ("edges_bare", GUESSING, "?step_caller")):
            rare = self.of(self.TAIL_TARGET, "step_caller", f";{self.HANDLER}") + self.of(self.OPEN, caller, f";{self.HANDLER}")
            self.check(f"{program} step", *self.of(self.TINY, "step_caller", f";{self.HANDLER}"),
                       f"main;outer;step_caller;{self.HANDLER}", rare=rare, modes=modes, at_least=250)

    def test_leaf_without_cfi(self):
        for program in ("edges_nocfi", "edges_bare"):
            self.check(f"{program} leaf", *self.of(["leaf_in_c"], "?mid_caller"), modes=GUESSING)

    def test_by_cfi_alone_without_cfi(self):
        for kind, names in (("sit", self.SIT), ("tiny", self.TINY + self.TAIL_TARGET + self.OPEN), ("leaf", ["leaf_in_c"])):
            self.check(f"edges_nocfi {kind}", "main;outer;mid_caller", modes=["dwarf"], cut=names, seen=False)
        self.check("edges_bare leaf", modes=["dwarf"], cut=["main", "outer", "mid_caller", "leaf_in_c"])


class OddFrames(chains.Case):
    RBP_VALUES = ("zero", "ten", "self", "pair", "chain", "edge", "wild")
    FRAMED = "main;outer;c_above;asm_with_frame;c_below;leaf_spin"
    FRAMELESS = "main;outer;c_above;asm_without_frame;c_below;leaf_spin"
    RECURSION = ";".join(["asm_recursion"] * 50)

    def with_cfi(self, arguments, *expected, builds=BUILDS):
        for build in builds:
            self.check(f"oddframes_cfi_{build} {arguments}", *expected, modes=MODES_OF[build])

    def without_cfi(self, arguments, *expected, builds=BUILDS, **more):
        for build in builds:
            self.check(f"oddframes_nocfi_{build} {arguments}", *expected, modes=GUESSING_OF[build], **more)

    def by_cfi_alone(self, arguments, cut):
        self.check(f"oddframes_nocfi_nofp {arguments}", modes=["dwarf"], cut=[cut])

    def test_decoys_in_locals(self):
        self.with_cfi("decoys", "main;outer;decoy_locals")
        self.without_cfi("decoys", "main;outer;decoy_locals")
        self.by_cfi_alone("decoys", "decoy_locals")

    def test_abused_rbp_with_cfi(self):
        for value in self.RBP_VALUES:
            self.check(f"oddframes_cfi_nofp rbp {value}", "main;outer;rbp_abuser", modes=["auto"])
        self.with_cfi("rbp self", "main;outer;rbp_abuser", builds=["fp"])

    def test_abused_rbp_without_cfi(self):
        """A frame that cannot be believed ends the walk at once. At the first and last instructions rbp is the caller's."""
        for value in self.RBP_VALUES:
            self.without_cfi(f"rbp {value}", "main;?outer;rbp_abuser", cut=["rbp_abuser"], seen=False)
            self.assertLess(self.stats["unwind_ns"], 5e6 * self.stats["samples"])

    def test_expression_with_a_register_that_calls_change(self):
        self.with_cfi("mont", "main;mont_caller;mont_asm")

    def test_frame_read_from_memory(self):
        for build in BUILDS:
            self.check(f"drap_{build}", "parent_fn;drap_fn;burn", modes=MODES_OF[build])

    def test_assembly_in_the_middle(self):
        self.with_cfi("framed", self.FRAMED)
        self.with_cfi("frameless", self.FRAMELESS, builds=["nofp"])
        self.without_cfi("framed", self.FRAMED)
        self.by_cfi_alone("framed", "asm_with_frame;c_below;leaf_spin")

    def test_assembly_without_a_frame_in_the_middle(self):
        """rbp is the caller's: with frame pointers it leads past the caller, without it leads nowhere."""
        self.check("oddframes_cfi_fp frameless", self.FRAMELESS, modes=["auto", "dwarf"])
        self.without_cfi("frameless", self.FRAMELESS.replace("c_above", "?c_above"), builds=["fp"])
        self.without_cfi("frameless", self.FRAMELESS, builds=["nofp"], cut=["asm_without_frame;c_below;leaf_spin"], seen=False)
        self.by_cfi_alone("frameless", "asm_without_frame;c_below;leaf_spin")

    def test_same_address_again_and_again(self):
        self.with_cfi("recursion", f"main;outer;{self.RECURSION}")
        self.without_cfi("recursion", f"main;outer;{self.RECURSION}")
        self.by_cfi_alone("recursion", "asm_recursion")

    def test_last_instruction_is_a_call(self):
        for kind, caller in (("noreturn", "ends_in_call"), ("noreturn_c", "ends_in_call_c")):
            self.with_cfi(kind, f"main;outer;{caller};abort_like")
            self.without_cfi(kind, f"main;outer;{caller};abort_like")


class Plt(chains.Case):
    """The dynamic linker has no names for most of its functions."""

    CALLER = "main;plt_outer;plt_caller"
    LINKER = r"\[ld-linux[\w.-]*\]|_dl_\w+|do_lookup_x|check_match|strcmp"

    def test_bound(self):
        for program in ("plt", "plt_fp", "plt_ibt"):
            entry = rf"\[{program}\]|\[plt\]|tiny_library_function@plt"
            turn = rf"{self.CALLER};?{entry}|tiny_library_function;*__restore_rt|\[libc.so.6\];plt_turn"
            self.check(program, f"{self.CALLER};tiny_library_function", f"{self.CALLER};{entry}", rare=[turn], at_least=150)

    def test_resolver(self):
        """
        Each call goes through the first entry and the dynamic linker. Not by frame pointers: the dynamic linker has none, so that
        from some of its functions they lead past plt_caller.
        """
        for program in ("plt", "plt_fp", "plt_ibt"):
            rare = rf"\[{program}\]|\[plt\]|tiny_library_function(?:@plt)?"
            self.check(f"{program} lazy", f"{self.CALLER};{self.LINKER};*{self.LINKER}", modes=["auto", "dwarf"],
                       rare=[f"{self.CALLER};{rare}"], at_least=150)


class Entry(chains.Case):
    def test_first_instruction_of_a_program(self):
        for name in ("entry_cfi", "entry_nocfi"):
            with Target(name, wait=False) as target:
                for mode in chains.MODES:
                    with self.subTest(program=name, mode=mode):
                        self.assert_chains(self.sample(target, "--unwind", mode), "_start", root="")


if __name__ == "__main__":
    harness.main()
