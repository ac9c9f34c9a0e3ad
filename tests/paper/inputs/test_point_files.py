import numpy as np
import pytest

from ddpn.paper.inputs.point_clouds import READERS, read_points
from ddpn.runtime.errors import InputError

POINTS = np.array([[0.5, -1.0, 2.0], [1e-3, 3.0, 4.25]], dtype=np.float32)
PLY = """ply
format ascii 1.0
comment made by hand
element vertex 2
property float z
property uchar red
property float x
property float y
element face 1
property list uchar int vertex_indices
end_header
2.0 255 0.5 -1.0
4.25 0 0.001 3.0
3 0 1 0
"""
TEXTS = {
    "a heading.csv": "x,y,z\n0.5,-1.0,2.0\n0.001,3.0,4.25\n",
    "no heading.csv": "0.5, -1.0, 2.0\n1e-3, 3.0, 4.25",
    "colors.xyz": "# of a scanner\n0.5 -1.0 2.0 255 0 0\n\n0.001\t3.0 4.25 0 0 0\n",
    "semicolons.txt": "0.5;-1.0;2.0\n0.001;3.0;4.25\n",
    "vertices.ply": PLY,
    "numbered.csv": "id,x,y,z\n7,0.5,-1.0,2.0\n8,0.001,3.0,4.25\n",
    "turned.csv": "Z;Y;X\n2.0;-1.0;0.5\n4.25;3.0;0.001\n",
    "an index.csv": ',"x","y","z"\n0,0.5,-1.0,2.0\n1,0.001,3.0,4.25\n',
    "slashes.txt": "//X Y Z R\n0.5 -1.0 2.0 9\n0.001 3.0 4.25 9\n",
    "marked.csv": "\ufeff0.5,-1.0,2.0\n0.001,3.0,4.25\n",
    "marked heading.csv": "\ufeffy,x,z\n-1.0,0.5,2.0\n3.0,0.001,4.25\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(tmp_path, name):
    path = tmp_path / name
    path.write_text(TEXTS[name], encoding="utf-8")
    points = read_points(path)
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points, POINTS)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_arrays(tmp_path, dtype):
    np.save(tmp_path / "a.npy", POINTS.astype(dtype))
    points = read_points(tmp_path / "a.npy")
    assert points.dtype == np.float32
    np.testing.assert_array_equal(points, POINTS.astype(dtype))


def test_no_points(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    (tmp_path / "a.csv").write_text("x,y,z\n", encoding="utf-8")
    (tmp_path / "a.xyz").write_text("", encoding="utf-8")
    header = PLY.partition("end_header")[0].replace("vertex 2", "vertex 0")
    (tmp_path / "a.ply").write_text(f"{header}end_header\n", encoding="utf-8")
    for name in ("a.npy", "a.csv", "a.xyz", "a.ply"):
        assert read_points(tmp_path / name).shape == (0, 3)


FAULTS = {
    "a.csv": ("1,2,3\n1,2\n", "must hold points .*, got "),
    "b.csv": ("1,2,3\n1,2,x\n", "must hold points .*, got "),
    "c.csv": ("1,2,3\n1,nan,3\n", r"must hold finite coordinates, got \[1.0, nan, 3.0\] at point 2"),
    "d.csv": ("1,2,1e60\n", r"must hold finite coordinates, got \[1.0, 2.0, 1e\+60\] at point 1"),
    "e.csv": ("1,5;2,5;3,5\n", "must hold points .*, got could not convert string '1,5'"),
    "f.csv": ("1,5 2,5 3,5\n", "must hold points .*, got could not convert string '5 2'"),
    "g.csv": (",,\n1,2,3\n", "must hold points .*, got could not convert string ''"),
    "h.csv": ("id,a,b\n1,2,3\n", "must hold points .*, got could not convert string 'id'"),
    "i.csv": ("x,y,z,x\n1,2,3,4\n", "The header of .*i.csv must name x, y and z once each, got 'x,y,z,x'"),
    "j.csv": ("1,,2,3\n", "must hold points .*, got "),
    "zip.npy": ("PK\x03\x04 and no archive", "must hold points .*, got BadZipFile"),
    "a.npy": ("not an array", "must hold points .*, got ValueError"),
    "a.pcd": ("", r"must end in .npy, .csv, .xyz, .txt, .ply, got '.pcd'"),
    "a.ply": ("", "got no header of a .ply file"),
    "b.ply": (PLY.replace("ascii", "binary_little_endian"), "must be an ASCII .ply file, got another format"),
    "c.ply": (PLY.replace("element vertex 2\n", ""), "whose first element is not vertex"),
    "d.ply": (PLY.replace("float z", "float u"), "got the properties u red x y and not x, y, z"),
    "e.ply": (PLY.replace("vertex 2", "vertex 4"), "got 3 lines where the header declares 4 vertices"),
    "f.ply": (PLY.replace("vertex 2", "vertex two"), "got 3 lines where the header declares two vertices"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_invalid_file(tmp_path, name):
    text, fault = FAULTS[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=fault):
        read_points(tmp_path / name)


@pytest.mark.parametrize("array", [np.zeros((4, 2)), np.zeros(3), np.array([["a", "b", "c"]])])
def test_an_array_of_something_else(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=r"must hold points \(n, 3\), got .* of shape "):
        read_points(tmp_path / "a.npy")


def test_an_array_with_a_broken_header(tmp_path):
    np.save(tmp_path / "a.npy", POINTS)
    data = (tmp_path / "a.npy").read_bytes()
    for there, instead in ((b"'descr'", b"'descr("), (b"(2, 3)", b"(2, 3 "), (b"{", b"\x00"), (b"False", b"0a1b2")):
        (tmp_path / "a.npy").write_bytes(data.replace(there, instead, 1))
        with pytest.raises(InputError, match=r"must hold points \(n, 3\), got \w+Error"):
            read_points(tmp_path / "a.npy")


def test_an_archive_of_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", POINTS)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"must hold points \(n, 3\), got"):
        read_points(tmp_path / "a.npy")


@pytest.mark.parametrize("ending", READERS)
def test_a_missing_file(tmp_path, ending):
    with pytest.raises(InputError, match=rf"^File not found: .*gone\{ending}"):
        read_points(tmp_path / f"gone{ending}")
