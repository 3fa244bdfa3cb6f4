"""python -m loaderd.convert: datasets whose annotations are lists beside the images."""

import contextlib
import io
import pathlib
import unittest

from images_test import ImagesTest, listed
from loaderd import convert


class ConvertLists(ImagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.jpegs = [file.read_bytes() for file in cls.files]

    def convert(self, source, status=0):
        """Runs the converter in this process; returns what it printed."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = convert.main([str(self.dir / source), str(self.dir / "out.pimg"), "--force"])
        self.assertEqual(result, status, said.getvalue())
        return said.getvalue()

    def put(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def fields(self, name="out.pimg"):
        return [(pathlib.Path(s["source"]).stem, s["label"], s.get("fields", {})) for s in listed(self.dir / name)]

    def test_celeba(self):
        """Attributes are a vector of 0 and 1, and each split is a dataset, of the project's lists and of Kaggle's tables."""
        for i in range(3):
            self.put(f"c/img_align_celeba/00000{i}.jpg", self.jpegs[i])
        self.put("c/list_attr_celeba.txt", "3\nBald Smiling Young \n000000.jpg -1  1 -1\n000001.jpg  1  1  1\n000002.jpg -1 -1 -1\n")
        said = self.convert("c")
        self.assertEqual(self.fields(), [("000000", -1, {"attributes": [0, 1, 0]}), ("000001", -1, {"attributes": [1, 1, 1]}), ("000002", -1, {"attributes": [0, 0, 0]})])
        self.assertIn("1 for yes and 0 for no: 0 Bald, 1 Smiling, 2 Young", said)
        self.assertIn("value u8[3]", said)
        self.put("c/list_eval_partition.txt", "000000.jpg 0\n000001.jpg 0\n000002.jpg 2\n")
        self.put("c/identity_CelebA.txt", "000000.jpg 2880\n000001.jpg 7\n000002.jpg 9\n")
        self.put("c/list_landmarks_align_celeba.txt", "3\nlefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x rightmouth_y\n"
                 + "".join(f"00000{i}.jpg " + " ".join(map(str, range(i, i + 10))) + "\n" for i in range(3)))
        self.convert("c")
        self.assertEqual([name for name, _, _ in self.fields("out-train.pimg")], ["000000", "000001"])
        self.assertEqual(self.fields("out-test.pimg"), [("000002", -1, {"attributes": [0, 0, 0], "identity": 9, "landmarks": [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]})])
        self.convert("c/list_attr_celeba.txt")  # the list stands for its folder
        for cell, told in (("2", "000001.jpg: Smiling is 2, not 1 or -1"), ("", "000001.jpg: 2 numbers, not 3")):
            self.put("c/list_attr_celeba.txt", f"2\nBald Smiling Young\n000000.jpg -1 1 -1\n000001.jpg 1 {cell} 1\n")
            self.assertIn(told, self.convert("c", status=2))
        self.put("c/list_attr_celeba.txt", "3\nBald\n000000.jpg -1\n")
        self.assertIn("line 1 says that there are 3 images, and 1 follow the header", self.convert("c", status=2))
        (self.dir / "c/list_attr_celeba.txt").unlink()
        for name in ("list_eval_partition.txt", "list_landmarks_align_celeba.txt", "identity_CelebA.txt"):
            (self.dir / "c" / name).unlink()
        self.put("c/list_attr_celeba.csv", "image_id,Bald,Young\n000002.jpg,-1,1\n")
        self.put("c/list_eval_partition.csv", "image_id,partition\n000002.jpg,1\n")
        self.convert("c")
        self.assertEqual(self.fields(), [("000002", -1, {"attributes": [0, 1]})])


if __name__ == "__main__":
    unittest.main()
