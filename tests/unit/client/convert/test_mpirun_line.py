"""Lines of mpirun."""

import pytest
from converting import ALL, about, line, spec


@pytest.mark.usefixtures("whole_api")
class TestMpirun:
    @pytest.mark.parametrize(
        ("options", "nodes", "processes"),
        [
            ("-np 4 -H a:2,b:2", 2, 2),
            ("-n 4 --host a,a,b,b", 2, 2),
            ("-H a:4,b:4", 2, 4),
            ("-np 3 -H a:2,b:2", 2, 2),
            ("-np 8 --hostfile hosts", 2, 4),
            ("--hostfile hosts", 2, 3),
            ("-np 8 -hostfile gone", 1, 8),
            ("-np 8 -npernode 4", 2, 4),
            ("-np 8 -ppn 2", 4, 2),
            ("-np 6 --map-by ppr:2:node", 3, 2),
            ("-np $NP", 1, 1),
            ("--allow-run-as-root --oversubscribe -np 2", 1, 2),
        ],
    )
    def test_nodes_and_processes_follow_from_hosts_and_numbers(self, options: str, nodes: int, processes: int) -> None:
        files = {"hosts": "# the nodes\nnode1 slots=3 max_slots=4\nnode2:3\n"}
        found = spec(line(f"mpirun {options} python x.py", files=files, supported=ALL))
        assert (found["nodes"], found["procsPerNode"]) == (nodes, processes)

    def test_variables_are_given_to_the_program_unless_they_are_the_launchers(self) -> None:
        text = "export B=2\nmpirun -x A=1 -x B -x RANK=3 -x D=$UNSET -x LD_LIBRARY_PATH -genv E 5 -np 1 python x.py"
        converted = line(text, supported=ALL)
        assert spec(converted)["trainer"]["env"] == [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "2"},
            {"name": "E", "value": "5"},
        ]
        assert "the launcher sets RANK" in about(converted, "-x RANK=3")
        assert "UNSET is not known" in about(converted, "-x D=$UNSET")
        assert "the image's LD_LIBRARY_PATH" in about(converted, "-x LD_LIBRARY_PATH")

    def test_an_uneven_number_of_processes_is_reported(self) -> None:
        converted = line("mpirun -np 3 -H a:2,b:2 python x.py", supported=ALL)
        assert "4 in all" in about(converted, "3 processes on 2 nodes")

    def test_options_of_a_module_behind_it_are_the_programs(self) -> None:
        found = spec(line("mpirun -np 2 python -m pkg.train -m -np 3", supported=ALL))
        assert found["trainer"] == {"module": "pkg.train", "args": ["-m", "-np", "3"]}

    @pytest.mark.parametrize(
        ("options", "remarks"),
        [
            # PALS, as on Cray systems.
            (
                "-n 8 --ppn 4 --depth=8 --cpu-bind depth --env A=1 --env B=2 --envall --line-buffer",
                {"--depth=8": "spec.trainer.resources", "--cpu-bind depth": "CPUs that it requests"},
            ),
            ("--np 8 -ppn 4 -d 8 --cpu-bind=list:0,8 -e A=1 --genv B=2 --no-vni", {"-d 8": "divided by"}),
            # MPICH's Hydra.
            (
                "-n 8 -ppn 4 -bind-to core -env A 1 -genv B 2 -genvall -iface ib0 -launcher ssh -prepend-rank",
                {"-iface ib0": "OMPI_MCA", "-launcher ssh": "operator starts", "-genvall": "spec.trainer.env"},
            ),
            ("-n 8 -ppn 4 --env A 1 -genv B=2 --genvlist PATH,HOME", {"--genvlist PATH,HOME": "spec.trainer.env"}),
        ],
    )
    def test_the_mpiexec_of_other_mpis_is_read_with_a_remark(self, options: str, remarks: dict[str, str]) -> None:
        converted = line(f"mpiexec {options} python x.py --env C=3 --depth 2", supported=ALL)
        found = spec(converted)
        assert (found["nodes"], found["procsPerNode"]) == (2, 4)
        assert found["trainer"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
        assert found["trainer"]["args"] == ["--env", "C=3", "--depth", "2"]
        for raw, said in remarks.items():
            assert said in about(converted, raw)

    def test_a_variable_of_two_words_whose_value_is_not_known_is_named(self) -> None:
        converted = line("mpiexec -n 1 -env A $UNSET python x.py", supported=ALL)
        assert "UNSET is not known" in about(converted, "-env A $UNSET")
